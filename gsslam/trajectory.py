"""A timed sequence of camera poses, and its file in TUM's format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.errors import DatasetError
from gsslam.files import atomic_path
from gsslam.geometry import matrix_from_quaternion, quaternion_from_matrix

_HEADER = "# timestamp tx ty tz qx qy qz qw"
# A quaternion shorter than this says nothing about a rotation.
_SHORTEST_QUATERNION = 1e-3


@dataclass(frozen=True)
class Trajectory:
    """Camera poses in the order of time."""

    # (N,) seconds, increasing.
    timestamps: NDArray[np.float64]
    # (N, 4, 4) camera points to world points.
    T_world_camera: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.timestamps)

    @classmethod
    def read(cls, path: Path) -> Trajectory:
        """Read a TUM file: lines of ``timestamp tx ty tz qx qy qz qw`` in seconds and metres.

        Empty lines and lines that start with ``#`` are skipped. Raises DatasetError, naming file
        and line, where a line has not 8 finite numbers, a quaternion is zero, or time goes back.
        """
        rows, line_numbers = _read_rows(path)
        _check_rows(path, rows, line_numbers)
        poses = np.tile(np.eye(4), (len(rows), 1, 1))
        poses[:, :3, :3] = matrix_from_quaternion(rows[:, 4:])
        poses[:, :3, 3] = rows[:, 1:4]
        return cls(rows[:, 0].copy(), poses)

    def write(self, path: Path) -> None:
        """Write a TUM file (quaternions x, y, z, w; w >= 0); raises OutputError where it cannot."""
        lines = [_HEADER]
        for timestamp, pose in zip(self.timestamps, self.T_world_camera, strict=True):
            values = [*pose[:3, 3], *quaternion_from_matrix(pose[:3, :3])]
            lines.append(f"{timestamp:.6f} " + " ".join(f"{value:.9f}" for value in values))
        with atomic_path(path) as temporary:
            temporary.write_text("\n".join(lines) + "\n", encoding="ascii")

    def nearest(
        self, timestamps: NDArray[np.float64], max_difference: float
    ) -> list[NDArray[np.float64] | None]:
        """Return for each time the pose nearest to it, None where none is within the limit (s)."""
        indices = nearest_within(timestamps, self.timestamps, max_difference)
        return [self.T_world_camera[i] if i >= 0 else None for i in indices]


def nearest_within(
    queries: NDArray[np.float64], times: NDArray[np.float64], max_difference: float
) -> NDArray[np.int64]:
    """Return for each query (M,) the index of the nearest of the sorted ``times`` (N,).

    Of two equally near the earlier; -1 where none is nearer than ``max_difference``. Seconds.
    """
    if len(times) == 0:
        return np.full(len(queries), -1, dtype=np.int64)
    after = np.clip(np.searchsorted(times, queries), 0, len(times) - 1)
    before = np.maximum(after - 1, 0)
    is_before = np.abs(queries - times[before]) <= np.abs(queries - times[after])
    nearest = np.where(is_before, before, after)
    return np.where(np.abs(queries - times[nearest]) < max_difference, nearest, -1)


def _read_rows(path: Path) -> tuple[NDArray[np.float64], list[int]]:
    """Return the numbers (N, 8) of a TUM file and the line each row stands in."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read trajectory {path}: {error}") from error
    rows: list[list[float]] = []
    line_numbers: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = [float(word) for word in line.replace(",", " ").split()]
        except ValueError:
            row = []
        if len(row) != 8:
            raise DatasetError(
                f"{path}, line {number}: expected 8 numbers (timestamp tx ty tz qx qy qz qw)"
            )
        rows.append(row)
        line_numbers.append(number)
    return np.array(rows, dtype=np.float64).reshape(-1, 8), line_numbers


def _check_rows(path: Path, rows: NDArray[np.float64], line_numbers: list[int]) -> None:
    """Raise DatasetError at the first row that cannot be a pose."""
    goes_back = np.concatenate([[False], np.diff(rows[:, 0]) < 0]) if len(rows) else np.empty(0)
    for bad, what in (
        (~np.isfinite(rows).all(axis=1), "the pose is NaN or infinite"),
        (np.linalg.norm(rows[:, 4:], axis=1) < _SHORTEST_QUATERNION, "the quaternion is zero"),
        (goes_back, "the time stamp is earlier than the one before; sort the file by time"),
    ):
        if np.any(bad):
            raise DatasetError(f"{path}, line {line_numbers[int(np.argmax(bad))]}: {what}")
