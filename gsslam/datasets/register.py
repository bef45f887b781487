"""Registration of depth that was measured by a second camera beside the colour camera."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.rectify import Calibration, RawDepth

# Measurements of one pixel that lie this far (relative) behind the nearest belong to what it hides.
_SAME_SURFACE = 1.02


class DepthRegistration:
    """Warps depth images into the colour camera: forward, z-buffered, the nearest surface wins.

    Each measurement becomes a point, is moved by ``T_color_depth`` and falls into a pixel of the
    target. A pixel takes the mean of the measurements of its nearest surface: the plain minimum of
    several noisy ones would lie systematically too near.
    """

    def __init__(
        self,
        depth: Calibration,
        target: Camera,
        T_color_depth: NDArray[np.float64],
        depth_scale: float,
    ) -> None:
        self._shape = (target.height, target.width)
        depth_camera, rays = depth.camera, _rays(depth)
        K = target.matrix()
        # Pixel (homogeneous) of depth z: z * ray_pixels + translation.
        self._ray_pixels = (K @ T_color_depth[:3, :3] @ rays).astype(np.float32)  # (3, N)
        self._translation = (K @ T_color_depth[:3, 3]).astype(np.float32)  # (3,)
        self._metres = np.float32(1 / depth_scale)
        # A measurement covers this many target pixels each way, so that no holes appear.
        scale = max(target.fx / depth_camera.fx, target.fy / depth_camera.fy)
        self._splat = max(1, int(np.ceil(scale)))

    def __call__(self, raw: RawDepth) -> NDArray[np.float32]:
        """Return the depth (H', W') in metres of the target from the raw image (H, W)."""
        pixels, z = self._project(raw)
        height, width = self._shape
        nothing = height * width
        nearest = np.full(nothing + 1, np.inf, dtype=np.float32)
        np.minimum.at(nearest, pixels, z)
        visible = z <= nearest[pixels] * np.float32(_SAME_SURFACE)
        pixels, z = pixels[visible], z[visible]
        count = np.bincount(pixels, minlength=nothing + 1)[:nothing]
        total = np.bincount(pixels, weights=z, minlength=nothing + 1)[:nothing]
        depth: NDArray[np.float32] = (total / np.maximum(count, 1)).astype(np.float32)
        return depth.reshape(self._shape)

    def _project(self, raw: RawDepth) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the flat target pixel of each measurement that falls into the image, and its z."""
        measured = np.flatnonzero(raw)
        z_depth = raw.ravel()[measured] * self._metres
        rays = self._ray_pixels[:, measured]
        z = z_depth * rays[2] + self._translation[2]
        u = (z_depth * rays[0] + self._translation[0]) / z
        v = (z_depth * rays[1] + self._translation[1]) / z
        offset = np.float32((self._splat - 1) / 2)
        columns = np.floor(u - offset).astype(np.int32)
        rows = np.floor(v - offset).astype(np.int32)
        if self._splat > 1:
            down, right = np.indices((self._splat, self._splat), dtype=np.int32).reshape(2, -1, 1)
            columns, rows = (columns + right).ravel(), (rows + down).ravel()
            z = np.tile(z, self._splat**2)
        height, width = self._shape
        inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height) & (z > 0)
        return (rows * width + columns)[inside], z[inside]


def _rays(depth: Calibration) -> NDArray[np.float64]:
    """Return the line of sight of every pixel (3, N), z = 1."""
    camera = depth.camera
    x = (np.arange(camera.width) + 0.5 - camera.cx) / camera.fx
    y = (np.arange(camera.height) + 0.5 - camera.cy) / camera.fy
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 1, 2)
    if depth.is_distorted:
        points = cv2.undistortPoints(points, np.eye(3), np.array(depth.distortion))
    return np.concatenate([points[:, 0].T, np.ones((1, len(points)))])
