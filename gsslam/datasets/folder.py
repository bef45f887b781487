"""Any folder of images: ``rgb/``, ``depth/``, ``camera.yaml``, ``groundtruth.txt`` if known."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import CameraEntry, MotionEntry, Positive, read_yaml
from gsslam.datasets.sequence import FrameFiles, ImageSequence, Sensor
from gsslam.datasets.tum import pair_by_time, with_ground_truth
from gsslam.errors import DatasetError

_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg"}
_DECIMAL = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class FolderCamera(CameraEntry):
    """The content of ``camera.yaml``: the colour camera, and how depth is stored."""

    # Value of a depth image at one metre.
    depth_scale: Positive
    # Used for time stamps where file names are no decimal numbers.
    fps: Positive = 30.0
    # Only where depth is not registered to colour: its camera, and depth to colour camera points.
    depth_camera: CameraEntry | None = None
    T_color_depth: MotionEntry | None = None


def open_folder(name: str, folder: Path, options: ReadOptions) -> Dataset:
    """Open ``folder``.

    Files are taken in natural order (frame2 before frame10). Names that are increasing decimal
    numbers are time stamps in seconds, and colour and depth are then paired by time; others are
    paired by position.
    """
    camera = read_yaml(folder / "camera.yaml", FolderCamera)
    if (camera.depth_camera is None) != (camera.T_color_depth is None):
        raise DatasetError(
            f"{folder / 'camera.yaml'}: depth_camera and T_color_depth go together: give both for "
            "unregistered depth, else neither"
        )
    colour, depth = _list_images(folder / "rgb"), _list_images(folder / "depth")
    files = with_ground_truth(_pair(colour, depth, camera.fps), folder / "groundtruth.txt")
    sensor = Sensor(
        colour=camera.calibration(),
        depth_scale=camera.depth_scale,
        depth=camera.depth_camera.calibration().camera if camera.depth_camera else None,
        T_color_depth=camera.T_color_depth.matrix() if camera.T_color_depth else None,
    )
    return ImageSequence(name, files, sensor, options)


def natural_key(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that compares the numbers in a file name by value."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _list_images(folder: Path) -> list[Path]:
    try:
        paths = [path for path in folder.iterdir() if path.suffix.lower() in _IMAGE_SUFFIXES]
    except OSError as error:
        raise DatasetError(f"cannot read folder {folder}: {error.strerror or error}") from error
    if not paths:
        raise DatasetError(f"{folder} has no PNG or JPEG image")
    return sorted(paths, key=natural_key)


def _timestamps(paths: list[Path]) -> list[float] | None:
    """Return the times that the file names say, None where they say none."""
    if not all(_DECIMAL.fullmatch(path.stem) for path in paths):
        return None
    times = [float(path.stem) for path in paths]
    return times if all(a < b for a, b in itertools.pairwise(times)) else None


def _pair(colour: list[Path], depth: list[Path], fps: float) -> list[FrameFiles]:
    colour_times, depth_times = _timestamps(colour), _timestamps(depth)
    if colour_times and depth_times:
        return pair_by_time(
            list(zip(colour_times, colour, strict=True)), list(zip(depth_times, depth, strict=True))
        )
    if len(colour) != len(depth):
        raise DatasetError(
            f"{colour[0].parent} has {len(colour)} images but {depth[0].parent} has {len(depth)}; "
            "without time stamps as file names they are paired by position"
        )
    times = colour_times or [index / fps for index in range(len(colour))]
    return [FrameFiles(*triple) for triple in zip(times, colour, depth, strict=True)]
