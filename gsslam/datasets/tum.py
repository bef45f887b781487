"""The TUM RGB-D benchmark's layout: Sturm et al., Evaluation of RGB-D SLAM Systems (2012)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.camera_file import CAMERA_FILE, read_camera
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.sequence import (
    MAX_TIME_DIFFERENCE,
    FrameFiles,
    RecordedSequence,
    Sensor,
    pairs_in_time,
)
from gsslam.errors import DatasetError
from gsslam.trajectory import Trajectory

TimedFiles = list[tuple[float, Path]]

# Folders of the benchmark are called after the camera that took them.
_CAMERA_IN_NAME = re.compile(r"freiburg([123])|\bfr([123])_")


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open a sequence folder: ``rgb.txt``, ``depth.txt``, images, ``groundtruth.txt`` if any.

    A ``camera.yaml`` in it says which cameras took it, else the catalogue does.
    """
    colour, depth = read_list(folder / "rgb.txt"), read_list(folder / "depth.txt")
    sensor = _sensor(entry, folder)
    files = with_ground_truth(pair_by_time(colour, depth), folder / "groundtruth.txt")
    motion = entry.family.T_truth_color
    if motion is not None:
        T_truth_color = motion.matrix()
        files = [
            replace(file, T_world_camera=file.T_world_camera @ T_truth_color)
            if file.T_world_camera is not None
            else file
            for file in files
        ]
    return RecordedSequence(entry.name, files, sensor, options)


def _sensor(entry: Entry, folder: Path) -> Sensor:
    if (folder / CAMERA_FILE).exists():
        return read_camera(folder / CAMERA_FILE).sensor()
    if entry.sequence.camera in entry.family.cameras:
        return entry.sensor()
    match = _CAMERA_IN_NAME.search(folder.resolve().name)
    if match is None:
        raise DatasetError(
            f"{folder} has no {CAMERA_FILE}, which says the camera's intrinsics and depth scale; "
            "write one (docs/datasets.md shows how)"
        )
    camera = f"fr{match[1] or match[2]}"
    return entry._replace(sequence=replace(entry.sequence, camera=camera)).sensor()


def read_list(path: Path) -> TimedFiles:
    """Read lines of ``timestamp file name``, sorted by time; raises DatasetError with the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"cannot read {path}: {error}; pass the folder that holds rgb.txt and depth.txt"
        ) from error
    files: TimedFiles = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            timestamp, name = line.split(maxsplit=1)
            files.append((finite(timestamp), path.parent / name.strip()))
        except ValueError:
            raise DatasetError(
                f"{path}, line {number}: expected a time stamp and a file name"
            ) from None
    return sorted(files)


def finite(text: str) -> float:
    """Return the number that ``text`` says; raises ValueError where it is none, NaN or infinite."""
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def pair_by_time(colour: TimedFiles, depth: TimedFiles) -> list[FrameFiles]:
    """Return a frame of every pair of ``pairs_in_time``; both lists are sorted by time."""
    return [
        FrameFiles(colour[i][0], colour[i][1], depth[j][1])
        for i, j in pairs_in_time(_times(colour), _times(depth))
    ]


def with_ground_truth(files: list[FrameFiles], path: Path) -> list[FrameFiles]:
    """Return ``files`` with the poses in ``path`` nearest in time (within 20 ms), if it exists."""
    if not path.exists():
        return files
    times = np.array([file.timestamp for file in files])
    poses = Trajectory.read(path).nearest(times, MAX_TIME_DIFFERENCE)
    return [
        FrameFiles(file.timestamp, file.colour, file.depth, pose)
        for file, pose in zip(files, poses, strict=True)
    ]


def _times(files: TimedFiles) -> NDArray[np.float64]:
    return np.array([timestamp for timestamp, _ in files], dtype=np.float64)
