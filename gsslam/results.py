"""What tracking and rendering give back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TrackingResult:
    """Pose of one frame and how far it can be trusted."""

    index: int
    timestamp: float
    # (4, 4) camera points to world points; the prediction where the frame is lost.
    T_world_camera: NDArray[np.float64]
    # False: the frame failed its gates, see ``reason``.
    tracked: bool
    is_keyframe: bool
    # Why the frame counts as lost; empty where it was tracked.
    reason: str
    converged: bool
    iterations: int
    # Share of the pixels that took part, 0 to 1.
    valid_share: float
    # Root-mean-square colour residual, colours 0 to 1.
    colour_residual: float
    # Root-mean-square depth residual, metres.
    depth_residual: float
    # Ratio of the smallest to the largest eigenvalue of the pose's normal equations.
    conditioning: float
    # Brightness of the frame against the map: frame = gain * map + bias.
    gain: float
    bias: float
    # Spheres of the map that it was tracked against, and that map's version.
    spheres: int
    map_version: int
    tracking_ms: float
    # What mapping a keyframe took, with the frame at which tracking got its result; else 0.
    mapping_ms: float
    # How long tracking waited for that.
    waiting_ms: float
    # What the memory budget counts, after the frame, in 10^6 bytes.
    memory_mb: float


@dataclass(frozen=True)
class RenderedView:
    """The map seen from a camera, as arrays on the host."""

    # (H, W, 3) float32, 0 to 1 (may overshoot a little).
    colour: NDArray[np.float32]
    # (H, W) float32 metres: expected depth; 0 where nothing is seen.
    depth: NDArray[np.float32]
    # (H, W) float32: share of the light that the map stops, 0 to 1.
    silhouette: NDArray[np.float32]


@dataclass(frozen=True)
class SphereState:
    """The spheres of a map as arrays on the host, in the parametrisation that is optimised."""

    # (N, 3) float32 metres, world coordinates.
    xyz: NDArray[np.float32]
    # (N,) float32, natural logarithm of the radius in metres.
    log_radius: NDArray[np.float32]
    # (N,) float32, log(opacity / (1 - opacity)).
    opacity_logit: NDArray[np.float32]
    # (N, 3) float32, 0 to 1.
    rgb: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.xyz)

    def columns(self) -> NDArray[np.float32]:
        """Return the (8, N) matrix that renderers take: rows as in raster/constants.py."""
        rows = [self.xyz.T, self.log_radius[None], self.opacity_logit[None], self.rgb.T]
        return np.ascontiguousarray(np.concatenate(rows), dtype=np.float32)


@dataclass(frozen=True)
class Metric:
    """One measured number; ``value`` is None where there is none (no ground truth, say)."""

    # Key in metrics.json; ends in the unit where there is one.
    name: str
    value: float | int | None
    # As printed; empty for counts and ratios.
    unit: str
