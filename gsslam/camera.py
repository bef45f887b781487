"""The pinhole camera. Distortion is removed when a dataset is read, so it does not appear here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gsslam.errors import ConfigError


@dataclass(frozen=True)
class Camera:
    """A pinhole camera; the centre of pixel (column u, row v) lies at (u + 0.5, v + 0.5).

    Calibrations that put pixel centres at integers (OpenCV, TUM, ROS) have 0.5 added to their
    principal point before they come here. All lengths are in pixels.
    """

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float

    def __post_init__(self) -> None:
        """Refuse sizes and focal lengths that cannot belong to a camera."""
        if self.width < 1 or self.height < 1:
            raise ConfigError(f"camera size {self.width}x{self.height} must be at least 1x1 pixels")
        if not (self.fx > 0 and self.fy > 0 and np.isfinite([self.fx, self.fy]).all()):
            raise ConfigError(
                f"focal lengths fx={self.fx}, fy={self.fy} must be positive and finite"
            )
        if not np.isfinite([self.cx, self.cy]).all():
            raise ConfigError(f"principal point cx={self.cx}, cy={self.cy} must be finite")

    def resized(self, width: int, height: int) -> Camera:
        """Return the camera of the same image resampled to ``width`` x ``height`` pixels."""
        sx, sy = width / self.width, height / self.height
        return Camera(width, height, self.fx * sx, self.fy * sy, self.cx * sx, self.cy * sy)

    def matrix(self) -> NDArray[np.float64]:
        """Return the 3x3 intrinsic matrix K, in the pixel convention of this class."""
        return np.array([[self.fx, 0, self.cx], [0, self.fy, self.cy], [0, 0, 1]])
