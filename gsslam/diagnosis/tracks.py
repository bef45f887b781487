"""Corners followed from one frame into another: what the images say of the motion by themselves."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.frame import Frame

Array = NDArray[np.float64]

_MOST_CORNERS = 400
_LEAST_DISTANCE = 8  # pixels
_WINDOW = (21, 21)
_LEVELS = 4
# Followed forth and back, a corner must return to within this many pixels.
_RETURN = 1.0


@dataclass(frozen=True)
class Tracks:
    """Corners of ``first`` that were found again in ``second``."""

    first: Frame
    second: Frame
    # (N, 2) pixels, centres at integer + 0.5.
    from_pixels: Array
    to_pixels: Array
    # Share of the corners of ``first`` that were found again; 0 where it has none.
    share: float

    @property
    def flow(self) -> float:
        """Median motion in image widths; 0 where nothing was found."""
        if not len(self.from_pixels):
            return 0.0
        motion = np.linalg.norm(self.to_pixels - self.from_pixels, axis=1)
        return float(np.median(motion)) / self.first.camera.width


def follow(first: Frame, second: Frame) -> Tracks:
    """Follow corners by Lucas and Kanade's method on an image pyramid, forth and back."""
    a, b = (cv2.cvtColor(frame.rgb, cv2.COLOR_RGB2GRAY) for frame in (first, second))
    corners = cv2.goodFeaturesToTrack(a, _MOST_CORNERS, 0.01, _LEAST_DISTANCE)
    if corners is None:
        return Tracks(first, second, np.empty((0, 2)), np.empty((0, 2)), 0.0)
    options = {"winSize": _WINDOW, "maxLevel": _LEVELS}
    there, found, _ = cv2.calcOpticalFlowPyrLK(a, b, corners, None, **options)  # type: ignore[call-overload]
    back, returned, _ = cv2.calcOpticalFlowPyrLK(b, a, there, None, **options)  # type: ignore[call-overload]
    distance = np.linalg.norm((back - corners)[:, 0], axis=1)
    good = (found[:, 0] == 1) & (returned[:, 0] == 1) & (distance < _RETURN)
    # OpenCV puts pixel centres at integers.
    start, end = (points[good, 0].astype(np.float64) + 0.5 for points in (corners, there))
    return Tracks(first, second, start, end, float(good.mean()))
