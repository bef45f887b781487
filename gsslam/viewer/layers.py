"""Layers: what the colours of the spheres and of the camera's image stand for."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.evaluation.images import unit_image
from gsslam.frame import Frame
from gsslam.results import RenderedView
from gsslam.viewer.spheres import Array, Spheres

COLOUR, DEPTH, ERROR, SCORE, FEATURES = "colour", "depth", "error", "score", "features"

# Spheres or pixels of which nothing is known.
_UNKNOWN = (110, 110, 110)
# Colour error at which the scale ends, colours 0 to 1.
_ERROR_RANGE = 0.3
# Scores at both ends of the scale, robust standard deviations.
_SCORE_RANGE = (-3.0, 3.0)
# Depths beyond these shares of all share the ends of the scale.
_DEPTH_PERCENTILES = (2, 98)


def layers_of(spheres: Spheres, *, has_images: bool) -> list[str]:
    """Return the layers for which there is anything to see."""
    known = {
        ERROR: spheres.error is not None or has_images,
        SCORE: spheres.score is not None,
        FEATURES: spheres.features.shape[1] > 0,
    }
    return [COLOUR, DEPTH, *(layer for layer, is_known in known.items() if is_known)]


def sphere_colours(
    layer: str, spheres: Spheres, T_world_camera: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Return the colour of each sphere, (N, 3); depth is that in the camera's view."""
    if layer == DEPTH:
        depth = _depths(spheres, T_world_camera)
        return scale_colours(depth, depth_range(depth))
    if layer == ERROR and spheres.error is not None:
        return scale_colours(spheres.error, (0, _ERROR_RANGE))
    if layer == SCORE and spheres.score is not None:
        return scale_colours(spheres.score, _SCORE_RANGE)
    if layer == FEATURES and spheres.features.shape[1]:
        return principal_colours(spheres.features)
    return _bytes(spheres.rgb)


def frame_picture(layer: str, frame: Frame, view: RenderedView | None) -> NDArray[np.uint8]:
    """Return the camera's image in the colours of the layer, (H, W, 3).

    ``view``, the map as the frame should see it, exposure included, is needed for the error.
    """
    if layer == DEPTH:
        measured = frame.depth > 0
        depth = np.where(measured, frame.depth, np.nan)
        return scale_colours(depth, depth_range(frame.depth[measured]))
    if layer == ERROR and view is not None:
        error = np.abs(np.clip(view.colour, 0, 1) - unit_image(frame.rgb)).mean(axis=2)
        return scale_colours(error, (0, _ERROR_RANGE))
    return frame.rgb


def depth_range(depth: Array) -> tuple[float, float]:
    """Return the depths at both ends of the scale for what lies in front of the camera."""
    ahead = depth[depth > 0]
    if not len(ahead):
        return 0.0, 1.0
    near, far = np.percentile(ahead, _DEPTH_PERCENTILES)
    return float(near), float(far)


def scale_colours(values: Array, limits: tuple[float, float]) -> NDArray[np.uint8]:
    """Return a colour for each of the values (...), (..., 3): blue is low, red high, grey NaN."""
    low, high = limits
    known = np.isfinite(values)
    share = (np.where(known, values, low) - low) / max(high - low, 1e-9)
    levels = (255 * np.clip(share, 0, 1)).astype(np.uint8)
    bgr = cv2.applyColorMap(levels.reshape(-1, 1), cv2.COLORMAP_TURBO)
    colours = np.array(bgr[:, 0, ::-1], dtype=np.uint8).reshape(*values.shape, 3)
    colours[~known] = _UNKNOWN
    return colours


def principal_colours(features: Array) -> NDArray[np.uint8]:
    """Return features (N, D) as colours (N, 3): alike where they are alike.

    The three main directions of variation become red, green and blue.
    """
    centred = features.astype(np.float64) - features.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    main = centred @ axes[:, ::-1][:, :3]  # (N, up to 3)
    main = np.pad(main, ((0, 0), (0, 3 - main.shape[1])))
    spread = 4 * main.std(axis=0) + 1e-12
    return _bytes(main / spread + 0.5)


def _depths(spheres: Spheres, T_world_camera: NDArray[np.float64]) -> Array:
    T_camera_world = geometry.inverse(T_world_camera)
    depth = spheres.xyz @ T_camera_world[2, :3].astype(np.float32) + T_camera_world[2, 3]
    return np.asarray(depth, dtype=np.float32)


def _bytes(unit: NDArray[np.floating]) -> NDArray[np.uint8]:
    return np.asarray(255 * np.clip(unit, 0, 1) + 0.5, dtype=np.uint8)
