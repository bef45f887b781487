"""Microsoft 7-Scenes: Shotton et al., Scene Coordinate Regression Forests (CVPR 2013)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.matrices import read_pose
from gsslam.datasets.sequence import FrameFiles, RecordedSequence
from gsslam.errors import DatasetError
from gsslam.geometry import inverse

# The recordings carry no time stamps.
_FRAMES_PER_SECOND = 30.0
_DEPTH_NAME = re.compile(r"frame-(\d+)\.depth\.png")


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open a sequence folder, or the scene folder that holds it as ``seq-01`` and so on.

    The published poses are the depth camera's; frames carry those of the colour camera.
    """
    recording = folder / (entry.recording or "seq-01")
    if recording.is_dir():
        folder = recording
    elif "/" in entry.name and entry.name.count("/") > 1 and folder.name != entry.recording:
        raise DatasetError(f"{folder} has no folder {entry.recording}")
    sensor = entry.sensor()
    T_color_depth = np.eye(4) if sensor.T_color_depth is None else sensor.T_color_depth
    files = _list_frames(folder, inverse(T_color_depth))
    return RecordedSequence(entry.name, files, sensor, options)


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
            T_world_depth = read_pose(folder / f"{stem}.pose.txt")
            pose = None if T_world_depth is None else T_world_depth @ T_depth_color
        colour, depth = folder / f"{stem}.color.{kind}", folder / f"{stem}.depth.png"
        files.append(FrameFiles(int(number) / _FRAMES_PER_SECOND, colour, depth, pose))
    return files
