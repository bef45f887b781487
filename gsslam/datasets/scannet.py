"""ScanNet as its own reader exports it: Dai et al., CVPR 2017."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.folder import list_images
from gsslam.datasets.images import read_colour, read_depth
from gsslam.datasets.matrices import camera_of, read_matrix, read_pose
from gsslam.datasets.rectify import Calibration
from gsslam.datasets.sequence import FrameFiles, RecordedSequence, Sensor
from gsslam.errors import DatasetError
from gsslam.geometry import inverse

_FRAMES_PER_SECOND = 30.0
# The sizes that its intrinsics are given for, whatever the images were exported in.
_COLOUR_SIZE, _DEPTH_SIZE = (1296, 968), (640, 480)


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open a scene's folder: ``color/``, ``depth/``, ``pose/`` and ``intrinsic/``.

    Frames where the scanner had lost itself have an infinite pose, and get none.
    """
    T_world_body = _poses(folder / "pose")
    T_body_color = _extrinsics(folder, "color")
    colour = {path.stem: path for path in list_images(folder / "color")}
    depth = {path.stem: path for path in list_images(folder / "depth")}
    numbers = [number for number in colour if number in depth]
    if not all(number.isdigit() for number in numbers) or not numbers:
        raise DatasetError(f"{folder}: color/ and depth/ have no images 0, 1, 2 ... in common")
    frames = []
    for number in numbers:
        pose = T_world_body.get(number)
        pose = None if pose is None else pose @ T_body_color
        time = int(number) / _FRAMES_PER_SECOND
        frames.append(FrameFiles(time, colour[number], depth[number], pose))
    sensor = _sensor(folder, entry.family.depth_scale, frames[0], T_body_color)
    return RecordedSequence(entry.name, frames, sensor, options)


def _sensor(
    folder: Path, depth_scale: float, first: FrameFiles, T_body_color: NDArray[np.float64]
) -> Sensor:
    shapes = read_colour(first.colour).shape, read_depth(first.depth).shape
    calibrations = []
    for name, (height, width, *_), size in zip(
        ("color", "depth"), shapes, (_COLOUR_SIZE, _DEPTH_SIZE), strict=True
    ):
        path = folder / "intrinsic" / f"intrinsic_{name}.txt"
        K = read_matrix(path)
        assert K is not None  # unknown ones are refused
        calibrations.append(Calibration(camera_of(K, *size, str(path)).resized(width, height)))
    T_color_depth = inverse(T_body_color) @ _extrinsics(folder, "depth")
    return Sensor(calibrations[0], depth_scale, calibrations[1], T_color_depth)


def _extrinsics(folder: Path, name: str) -> NDArray[np.float64]:
    """Return a camera's pose (4, 4) on the scanner: the identity in all published scenes."""
    path = folder / "intrinsic" / f"extrinsic_{name}.txt"
    T = read_pose(path) if path.exists() else None
    return np.eye(4) if T is None else T


def _poses(folder: Path) -> dict[str, NDArray[np.float64]]:
    """Return the scanner's pose by the number of the frame, where there is one."""
    poses = {path.stem: read_pose(path, may_be_unknown=True) for path in folder.glob("*.txt")}
    return {number: pose for number, pose in poses.items() if pose is not None}
