"""One RGB-D frame, undistorted and registered: what every dataset delivers and SLAM consumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera


@dataclass(frozen=True)
class Frame:
    """A colour image and the depth image registered to it."""

    # Position in the sequence as it is processed, from 0.
    index: int
    # Seconds.
    timestamp: float
    # (H, W, 3) uint8.
    rgb: NDArray[np.uint8]
    # (H, W) float32, metres along the optical axis; 0 where nothing was measured.
    depth: NDArray[np.float32]
    camera: Camera
    # (4, 4) ground truth, camera points to world points; None where there is none.
    T_world_camera: NDArray[np.float64] | None = None
