"""A timed sequence of camera poses, and its file in TUM's format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Trajectory:
    """Camera poses in the order of time."""

    # (N,) seconds, increasing.
    timestamps: NDArray[np.float64]
    # (N, 4, 4) camera points to world points.
    T_world_camera: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.timestamps)
