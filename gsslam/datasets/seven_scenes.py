"""Microsoft 7-Scenes: Shotton et al., Scene Coordinate Regression Forests (CVPR 2013)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.sequence import FrameFiles, ImageSequence
from gsslam.errors import DatasetError
from gsslam.geometry import inverse, orthonormalized

# The recordings carry no time stamps.
_FRAMES_PER_SECOND = 30.0
_DEPTH_NAME = re.compile(r"frame-(\d+)\.depth\.png")


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open a sequence folder, or the scene folder that holds it as ``seq-01``.

    The published poses are the depth camera's; frames carry those of the colour camera.
    """
    first_sequence = folder / "seq-01"
    folder = first_sequence if first_sequence.is_dir() else folder
    sensor = entry.sensor()
    T_color_depth = np.eye(4) if sensor.T_color_depth is None else sensor.T_color_depth
    files = _list_frames(folder, inverse(T_color_depth))
    return ImageSequence(entry.name, files, sensor, options)


def _list_frames(folder: Path, T_depth_color: NDArray[np.float64]) -> list[FrameFiles]:
    """Return the frames that have a depth image, in the order of their numbers."""
    names = {path.name for path in folder.iterdir()}
    numbers = sorted(match[1] for name in names if (match := _DEPTH_NAME.fullmatch(name)))
    if not numbers:
        raise DatasetError(
            f"{folder} has no frame-*.depth.png; pass the folder of one sequence, or unpack it"
        )
    files = []
    for number in numbers:
        stem = f"frame-{number}"
        kind = "jpg" if f"{stem}.color.jpg" in names else "png"
        pose = None
        if f"{stem}.pose.txt" in names:
            pose = orthonormalized(_read_pose(folder / f"{stem}.pose.txt")) @ T_depth_color
        colour, depth = folder / f"{stem}.color.{kind}", folder / f"{stem}.depth.png"
        files.append(FrameFiles(int(number) / _FRAMES_PER_SECOND, colour, depth, pose))
    return files


def _read_pose(path: Path) -> NDArray[np.float64]:
    """Return the matrix (4, 4) in ``path``, depth camera points to world points."""
    try:
        values = np.array(path.read_text(encoding="ascii").split(), dtype=np.float64)
    except (OSError, ValueError) as error:
        raise DatasetError(f"cannot read pose {path}: {error}") from error
    if values.size != 16:
        raise DatasetError(f"pose {path} has {values.size} numbers where 16 are expected")
    if not np.isfinite(values).all():
        raise DatasetError(f"pose {path} is NaN or infinite")
    return values.reshape(4, 4)
