"""Exports of the Record3D app (iPhone and iPad with a lidar): .r3d files, and EXR + RGB folders."""

from __future__ import annotations

import itertools
import json
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from gsslam.camera import Camera
from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import Entry, Finite, Positive
from gsslam.datasets.images import decode_colour, measured, read_colour
from gsslam.datasets.rectify import Calibration
from gsslam.datasets.sequence import RecordedSequence, Sensor
from gsslam.errors import BadFrameError, ConfigError, DatasetError
from gsslam.extras import require
from gsslam.geometry import matrix_from_quaternion

# ARKit's cameras have y up and look along -z.
_AXES = np.diag([1.0, -1.0, -1.0, 1.0])
# No file in a recording is larger than this.
_LARGEST_MEMBER = 1 << 28
# What is raised by zip files that are damaged.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)

_EXR_MAGIC = 20000630
# Bits of the version: tiles, deep data, several parts.
_EXR_NOT_SCAN_LINES = 0x200 | 0x800 | 0x1000

Pose = Annotated[list[float], Field(min_length=7, max_length=7)]
Coefficients = Annotated[list[float], Field(min_length=4, max_length=4)]


@checked_dataclass(frozen=True, config=ConfigDict(extra="ignore"))
class _Metadata:
    """What is read of the metadata, under Record3D's names."""

    # Of the colour images.
    w: Annotated[int, Field(ge=1)]
    h: Annotated[int, Field(ge=1)]
    # Column by column; in pixels of the colour images.
    K: Annotated[list[Finite], Field(min_length=9, max_length=9)]
    fps: Positive = 60.0
    # Of the depth images.
    dw: int = 0
    dh: int = 0
    # qx, qy, qz, qw, tx, ty, tz.
    poses: list[Pose] = Field(default_factory=list)
    # Seconds.
    frameTimestamps: list[Finite] = Field(default_factory=list)
    # fx, fy, cx, cy.
    perFrameIntrinsicCoeffs: list[Coefficients] = Field(default_factory=list)

    def camera(self) -> Camera:
        """Return the colour camera: the median over frames, since autofocus moves the lens."""
        fx, fy, cx, cy = self.K[0], self.K[4], self.K[6], self.K[7]
        if self.perFrameIntrinsicCoeffs:
            fx, fy, cx, cy = np.median(self.perFrameIntrinsicCoeffs, axis=0).tolist()
        return Camera(self.w, self.h, fx, fy, cx, cy)

    def time(self, index: int) -> float:
        """Return when frame ``index`` was taken, in seconds."""
        if index < len(self.frameTimestamps):
            return self.frameTimestamps[index]
        return index / self.fps

    def pose(self, index: int) -> NDArray[np.float64] | None:
        """Return T_world_camera of frame ``index``; None where the phone had lost itself."""
        if index >= len(self.poses):
            return None
        numbers = np.array(self.poses[index], dtype=np.float64)
        if not np.isfinite(numbers).all() or np.linalg.norm(numbers[:4]) < 1e-3:
            return None
        T = np.eye(4)
        T[:3, :3] = matrix_from_quaternion(numbers[:4])
        T[:3, 3] = numbers[4:]
        return T @ _AXES


class _Recording(Protocol):
    """Where the files of a recording lie."""

    place: Path

    def metadata(self) -> bytes: ...

    def frames(self) -> list[int]:
        """Return the numbers of the frames that have both images."""
        ...

    def depth_size(self) -> tuple[int, int] | None:
        """Return width and height of depth, where the metadata do not say it."""
        ...

    def colour(self, index: int) -> NDArray[np.uint8]: ...

    def depth(self, index: int, shape: tuple[int, int]) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class _Frame:
    """A frame of a recording."""

    timestamp: float
    index: int
    recording: _Recording
    depth_shape: tuple[int, int]
    T_world_camera: NDArray[np.float64] | None

    @property
    def colour_name(self) -> str:
        return f"{self.index} of {self.recording.place}"

    @property
    def depth_name(self) -> str:
        return f"depth {self.index} of {self.recording.place}"

    def read_colour(self) -> NDArray[np.uint8]:
        return self.recording.colour(self.index)

    def read_depth(self) -> NDArray[np.float32]:
        return measured(self.recording.depth(self.index, self.depth_shape), self.depth_name)


def open_sequence(entry: Entry, place: Path, options: ReadOptions) -> Dataset:
    """Open a .r3d file, or the folder of an export.

    Depth has fewer pixels than colour, and is sampled at colour's.
    """
    recording: _Recording = _File(place) if place.is_file() else _Folder(place)
    metadata = _parse(recording.metadata(), place)
    numbers = recording.frames()
    if not numbers:
        raise DatasetError(f"{place} has no frames with colour and depth")
    try:
        camera = metadata.camera()
        width, height = recording.depth_size() or (metadata.dw, metadata.dh)
        depth = Calibration(camera.resized(width, height))
    except ConfigError as error:
        raise DatasetError(f"{place}: its metadata describe no camera: {error}") from error
    frames = [
        _Frame(metadata.time(index), index, recording, (height, width), metadata.pose(index))
        for index in numbers
    ]
    return RecordedSequence(entry.name, frames, Sensor(Calibration(camera), 1.0, depth), options)


def _parse(content: bytes, place: Path) -> _Metadata:
    try:
        return TypeAdapter(_Metadata).validate_python(json.loads(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "content"
        raise DatasetError(f"{place}: metadata: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{place}: its metadata are no JSON: {error}") from error


class _File:
    """A .r3d file: a zip with ``metadata`` and ``rgbd/0.jpg``, ``rgbd/0.depth`` and so on.

    Its members are read by their names and never unpacked.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._lzfse: Any = require("lzfse", "record3d", "reading .r3d files")
        try:
            with zipfile.ZipFile(place) as file:
                self._members = {info.filename: info.file_size for info in file.infolist()}
        except _DAMAGE as error:
            raise DatasetError(
                f"{place} is truncated, damaged or no .r3d file ({error})"
            ) from error

    def metadata(self) -> bytes:
        return self._read("metadata")

    def frames(self) -> list[int]:
        numbers = (re.fullmatch(r"rgbd/(\d+)\.depth", name) for name in self._members)
        found = sorted(int(match[1]) for match in numbers if match)
        return [index for index in found if f"rgbd/{index}.jpg" in self._members]

    def depth_size(self) -> None:
        return None

    def colour(self, index: int) -> NDArray[np.uint8]:
        return decode_colour(self._read(f"rgbd/{index}.jpg"), f"rgbd/{index}.jpg of {self.place}")

    def depth(self, index: int, shape: tuple[int, int]) -> NDArray[np.float32]:
        name = f"rgbd/{index}.depth of {self.place}"
        try:
            data = self._lzfse.decompress(self._read(f"rgbd/{index}.depth"))
        except self._lzfse.error as error:
            raise BadFrameError(f"{name} is damaged: {error}") from error
        count = shape[0] * shape[1]
        kind = {4 * count: np.float32, 2 * count: np.float16}.get(len(data))
        if kind is None:
            raise BadFrameError(f"{name} has {len(data)} bytes for {shape[1]}x{shape[0]} pixels")
        return np.frombuffer(data, kind).reshape(shape).astype(np.float32)

    def _read(self, name: str) -> bytes:
        if self._members.get(name, 0) > _LARGEST_MEMBER:
            raise DatasetError(f"{self.place}: {name} is too large for a recording")
        try:
            # Opened anew, since several threads read.
            with zipfile.ZipFile(self.place) as file:
                return file.read(name)
        except KeyError as error:
            raise DatasetError(f"{self.place} has no {name}: it is no .r3d file") from error
        except _DAMAGE as error:
            raise BadFrameError(f"{self.place}: {name} is damaged ({error})") from error


class _Folder:
    """The export "EXR + RGB": ``metadata.json``, ``rgb/0.jpg`` and ``depth/0.exr`` and so on."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._exr: Any = require("OpenEXR", "record3d", "reading Record3D's EXR images")
        self._colour = _numbered(place / "rgb", (".jpg", ".png"))
        self._depth = _numbered(place / "depth", (".exr",))

    def metadata(self) -> bytes:
        path = self.place / "metadata.json"
        try:
            return path.read_bytes()
        except OSError as error:
            raise DatasetError(f"cannot read {path}: {error.strerror or error}") from error

    def frames(self) -> list[int]:
        return sorted(self._colour.keys() & self._depth.keys())

    def depth_size(self) -> tuple[int, int]:
        height, width = self._read(self._depth[self.frames()[0]]).shape
        return width, height

    def colour(self, index: int) -> NDArray[np.uint8]:
        return read_colour(self._colour[index])

    def depth(self, index: int, shape: tuple[int, int]) -> NDArray[np.float32]:
        return self._read(self._depth[index])

    def _read(self, path: Path) -> NDArray[np.float32]:
        # The library writes of truncated files to the terminal, too.
        if not _exr_is_complete(path):
            raise BadFrameError(f"depth image {path} is truncated, damaged or no EXR")
        try:
            with self._exr.File(str(path), separate_channels=True) as file:
                channels = file.channels()
                name = next(itertools.chain((n for n in "ZYR" if n in channels), channels))
                return np.array(channels[name].pixels, dtype=np.float32)
        except Exception as error:  # of many kinds: the library trusts what a file says
            reason = " ".join(str(error).split())
            raise BadFrameError(f"depth image {path} is damaged or no EXR ({reason})") from error


def _numbered(folder: Path, suffixes: tuple[str, ...]) -> dict[int, Path]:
    """Return the files called 0, 1, 2 ... with one of the suffixes."""
    try:
        paths = list(folder.iterdir())
    except OSError as error:
        raise DatasetError(f"cannot read folder {folder}: {error.strerror or error}") from error
    return {int(p.stem): p for p in paths if p.suffix.lower() in suffixes and p.stem.isdigit()}


def _exr_is_complete(path: Path) -> bool:
    """Tell whether an EXR of scan lines has all of its chunks: OpenEXR's File Layout, 2013."""
    try:
        data = path.read_bytes()
        magic, version = struct.unpack_from("<II", data)
        if magic != _EXR_MAGIC or version & _EXR_NOT_SCAN_LINES:
            return bool(magic == _EXR_MAGIC)
        at = 8
        while data[at]:  # attributes: name, type, size, value
            at = data.index(0, data.index(0, at) + 1) + 1
            at += 4 + struct.unpack_from("<i", data, at)[0]
        (first,) = struct.unpack_from("<Q", data, at + 1)
        offsets = struct.unpack_from(f"<{(first - at - 1) // 8}Q", data, at + 1)
        (size,) = struct.unpack_from("<I", data, max(offsets) + 4)
        end: int = max(offsets) + 8 + size
        return len(data) >= end
    except (OSError, ValueError, IndexError, struct.error):
        return False
