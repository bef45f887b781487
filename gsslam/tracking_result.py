"""What is reported of a tracked frame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gsslam.frame import Frame
from gsslam.results import TrackingResult
from gsslam.snapshot import MapSnapshot
from gsslam.tracking import PoseEstimate


def tracking_result(
    frame: Frame,
    estimate: PoseEstimate | None,
    reason: str,
    *,
    is_keyframe: bool,
    T_world_camera: NDArray[np.float64],
    exposure: tuple[float, float],
    snapshot: MapSnapshot,
    times_ms: tuple[float, float, float],
    memory_mb: float,
) -> TrackingResult:
    """Report a frame; the first one, without an estimate, is right by definition.

    ``times_ms`` are those of tracking, of mapping, and of waiting for it.
    """
    gain, bias = exposure
    tracking_ms, mapping_ms, waiting_ms = times_ms
    return TrackingResult(
        index=frame.index,
        timestamp=frame.timestamp,
        T_world_camera=T_world_camera,
        tracked=not reason,
        is_keyframe=is_keyframe,
        reason=reason,
        converged=estimate.converged if estimate else True,
        iterations=estimate.iterations if estimate else 0,
        valid_share=estimate.valid_share if estimate else 1.0,
        colour_residual=estimate.equations.colour_rms if estimate else 0.0,
        depth_residual=estimate.equations.depth_rms if estimate else 0.0,
        conditioning=estimate.conditioning() if estimate else 1.0,
        gain=gain,
        bias=bias,
        spheres=snapshot.count,
        map_version=snapshot.version,
        tracking_ms=tracking_ms,
        mapping_ms=mapping_ms,
        waiting_ms=waiting_ms,
        memory_mb=memory_mb,
    )
