"""Poses and cameras that datasets write as plain matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.errors import ConfigError, DatasetError
from gsslam.geometry import orthonormalized

Array = NDArray[np.float64]


def read_matrix(path: Path, *, may_be_unknown: bool = False) -> Array | None:
    """Return the 4 x 4 matrix in a text file.

    Raises DatasetError where it has not 16 numbers, or where one is NaN or infinite; with
    ``may_be_unknown`` that is how a dataset says that it does not know, and None is returned.
    """
    values = _numbers(path)
    if values.size != 16:
        raise DatasetError(f"pose {path} has {values.size} numbers where 16 are expected")
    if not np.isfinite(values).all():
        if may_be_unknown:
            return None
        raise DatasetError(f"pose {path} is NaN or infinite")
    return values.reshape(4, 4)


def read_pose(path: Path, *, may_be_unknown: bool = False) -> Array | None:
    """Return the rigid motion (4, 4) in a text file, as ``read_matrix`` does."""
    matrix = read_matrix(path, may_be_unknown=may_be_unknown)
    return None if matrix is None else rigid(matrix, str(path))


def read_poses(path: Path) -> list[Array]:
    """Return the rigid motions (4, 4) in a file that has one with 16 numbers in every line."""
    try:
        lines = [line for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read poses {path}: {error}") from error
    poses = []
    for number, line in enumerate(lines, start=1):
        name = f"{path}, line {number}"
        try:
            values = np.array(line.split(), dtype=np.float64)
        except ValueError:
            values = np.empty(0)
        if values.size != 16:
            raise DatasetError(f"{name}: expected the 16 numbers of a pose")
        if not np.isfinite(values).all():
            raise DatasetError(f"{name}: the pose is NaN or infinite")
        poses.append(rigid(values.reshape(4, 4), name))
    return poses


def rigid(matrix: Array, name: str) -> Array:
    """Return ``matrix`` (4, 4) with an orthonormal rotation; raises DatasetError where it has none.

    Files give rotations to a few digits only. ``name`` is what the pose is called.
    """
    scale = np.linalg.det(matrix[:3, :3])
    if not 0.9 < scale < 1.1:
        raise DatasetError(f"pose {name} is no rigid motion: its determinant is {scale:.3g}, not 1")
    return orthonormalized(matrix)


def camera_of(K: Array, width: int, height: int, name: str) -> Camera:
    """Return the camera with the matrix ``K``, whose pixel centres lie at integers.

    Raises DatasetError, naming its file ``name``, where it belongs to no camera.
    """
    try:
        fx, fy, cx, cy = (float(K[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2)))
        return Camera(width, height, fx, fy, cx + 0.5, cy + 0.5)
    except ConfigError as error:
        raise DatasetError(f"{name}: {error}") from error


def _numbers(path: Path) -> Array:
    try:
        return np.array(path.read_text(encoding="ascii").split(), dtype=np.float64)
    except (OSError, ValueError) as error:
        raise DatasetError(f"cannot read pose {path}: {error}") from error
