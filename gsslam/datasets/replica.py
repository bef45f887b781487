"""Replica as rendered for NICE-SLAM (Zhu et al., 2022) and for Semantic-NeRF (Zhi et al., 2021)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import CameraEntry, Entry, Finite, Positive
from gsslam.datasets.folder import natural_key
from gsslam.datasets.matrices import read_poses
from gsslam.datasets.rectify import Calibration
from gsslam.datasets.sequence import FrameFiles, RecordedSequence, Sensor
from gsslam.errors import DatasetError

# Rendered without a clock.
_FRAMES_PER_SECOND = 30.0
_IMAGE_SUFFIXES = (".jpg", ".png")
_SEMANTIC_DEPTH_SCALE = 1000.0


@dataclass(frozen=True, config=ConfigDict(extra="ignore"))
class _CameraParameters:
    """What is read of ``camera`` in cam_params.json."""

    w: Annotated[int, Field(ge=1)]
    h: Annotated[int, Field(ge=1)]
    fx: Positive
    fy: Positive
    cx: Finite
    cy: Finite
    scale: Positive

    def calibration(self) -> Calibration:
        return CameraEntry(self.w, self.h, self.fx, self.fy, self.cx, self.cy).calibration()


@dataclass(frozen=True, config=ConfigDict(extra="ignore"))
class _CameraParametersFile:
    """The content of cam_params.json."""

    camera: _CameraParameters


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open a scene's folder in either layout."""
    if (folder / "traj_w_c.txt").exists():
        semantic = replace(entry.sequence, camera="semantic")
        sensor = entry._replace(sequence=semantic).sensor()
        sensor = replace(sensor, depth_scale=_SEMANTIC_DEPTH_SCALE)
        colour = _images(folder / "rgb", "rgb_")
        depth = _images(folder / "depth", "depth_")
        poses = folder / "traj_w_c.txt"
    else:
        sensor = _read_sensor(folder) or entry.sensor()
        colour, depth = (_images(folder / "results", kind) for kind in ("frame", "depth"))
        poses = folder / "traj.txt"
    return RecordedSequence(entry.name, _frames(colour, depth, poses), sensor, options)


def _frames(colour: list[Path], depth: list[Path], path: Path) -> list[FrameFiles]:
    """Return the frames; images and lines of poses belong together by their position."""
    poses = read_poses(path) if path.exists() else None
    counts = {len(colour), len(depth), len(colour if poses is None else poses)}
    if len(counts) > 1:
        raise DatasetError(
            f"{path.parent} has {len(colour)} colour images, {len(depth)} depth images and "
            f"{len(poses or [])} poses in {path.name}, of which each frame needs one"
        )
    return [
        FrameFiles(i / _FRAMES_PER_SECOND, *images, poses[i] if poses else None)
        for i, images in enumerate(zip(colour, depth, strict=True))
    ]


def _images(folder: Path, prefix: str) -> list[Path]:
    try:
        paths = [
            path
            for path in folder.iterdir()
            if path.name.startswith(prefix) and path.suffix in _IMAGE_SUFFIXES
        ]
    except OSError as error:
        raise DatasetError(
            f"cannot read folder {folder}: {error.strerror or error}; pass a scene's folder, "
            "such as Replica/room0"
        ) from error
    if not paths:
        raise DatasetError(f"{folder} has no image called {prefix}*.png or .jpg")
    return sorted(paths, key=natural_key)


def _read_sensor(folder: Path) -> Sensor | None:
    """Return the camera that cam_params.json says, in the scene's folder or above it, if any."""
    places = (folder / "cam_params.json", folder.resolve().parent / "cam_params.json")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        camera = TypeAdapter(_CameraParametersFile).validate_python(content).camera
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise DatasetError(f"cannot read {path}: {reason}") from error
    return Sensor(camera.calibration(), camera.scale)
