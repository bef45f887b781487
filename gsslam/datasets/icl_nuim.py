"""ICL-NUIM in its TUM-compatible layout: Handa et al., ICRA 2014."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.sequence import FrameFiles, RecordedSequence
from gsslam.errors import DatasetError
from gsslam.trajectory import Trajectory

# Its time stamps are the numbers of the frames.
_FRAMES_PER_SECOND = 30.0
# Its cameras have y up, in a left-handed world; mirroring both makes them ours.
_MIRROR = np.diag([1.0, -1.0, 1.0, 1.0])


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open a sequence folder: ``associations.txt``, images, and ``*.gt.freiburg`` if any."""
    rows = _read_associations(folder / "associations.txt")
    truth = _read_truth(folder)
    frames = [
        FrameFiles(number / _FRAMES_PER_SECOND, colour, depth, truth.get(round(number)))
        for number, colour, depth in rows
    ]
    return RecordedSequence(entry.name, frames, entry.sensor(), options)


def _read_associations(path: Path) -> list[tuple[float, Path, Path]]:
    """Return number, colour image and depth image of every frame, in the order of the numbers."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"cannot read {path}: {error}; pass the folder that holds associations.txt"
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            _, depth, index, colour = words
            rows.append((float(index), path.parent / colour, path.parent / depth))
        except ValueError:
            raise DatasetError(
                f"{path}, line {number}: expected number, depth image, number and colour image"
            ) from None
    # Some of its files name the colour image first.
    if rows and rows[0][1].parent.name == "depth":
        rows = [(index, depth, colour) for index, colour, depth in rows]
    return sorted(rows)


def _read_truth(folder: Path) -> dict[int, NDArray[np.float64]]:
    """Return the pose of every frame that has one, by its number."""
    paths = [*sorted(folder.glob("*.gt.freiburg")), folder / "groundtruth.txt"]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return {}
    truth = Trajectory.read(path)
    poses = _MIRROR @ truth.T_world_camera @ _MIRROR
    return {round(number): pose for number, pose in zip(truth.timestamps, poses, strict=True)}
