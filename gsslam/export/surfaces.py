"""What the map shows of surfaces, seen from the poses of a run: depth without its doubtful pixels.

A rendered depth is the mean over the spheres that a pixel meets. Where few light is stopped, and at
the edge between two surfaces, that mean lies on neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.rendering import MapRenderer
from gsslam.results import RenderedView

# Share of the light that the map must stop.
_LEAST_SILHOUETTE = 0.6
# Relative difference of depth among a pixel and its neighbours that makes an edge.
_EDGE = 0.05

OnView = Callable[[int, int], None]


@dataclass(frozen=True)
class SurfaceView:
    """The map from one pose."""

    # (4, 4) camera points to world points.
    T_world_camera: NDArray[np.float64]
    # (H, W, 3) float32, 0 to 1.
    colour: NDArray[np.float32]
    # (H, W) float32 metres; 0 where there is no surface or none that can be trusted.
    depth: NDArray[np.float32]


def surface_views(
    renderer: MapRenderer,
    camera: Camera,
    poses: Sequence[NDArray[np.float64]],
    on_view: OnView,
) -> Iterator[SurfaceView]:
    """Yield the map from each of ``poses``; ``on_view`` is told how many are done, of how many."""
    for done, pose in enumerate(poses, start=1):
        view = renderer.render(pose, camera)
        colour = np.clip(view.colour, 0, 1).astype(np.float32)
        yield SurfaceView(pose, colour, solid_depth(view))
        on_view(done, len(poses))


def solid_depth(view: RenderedView) -> NDArray[np.float32]:
    """Return the depth (H, W) of ``view``, 0 where it is doubtful."""
    window = np.ones((3, 3), np.uint8)
    depth = view.depth
    spread = cv2.dilate(depth, window) - cv2.erode(depth, window)
    doubtful = (view.silhouette < _LEAST_SILHOUETTE) | (spread > _EDGE * depth)
    return np.where(doubtful, np.float32(0), depth).astype(np.float32)
