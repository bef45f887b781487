"""What is known about each frame of a run: one line of frames.jsonl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gsslam.results import TrackingResult

Status = Literal["tracked", "lost", "skipped", "dropped"]


@dataclass(frozen=True)
class FrameRecord:
    """One frame: how it was tracked and, after evaluation, how well it is explained.

    A value that does not exist is None: a skipped frame was never tracked, a sequence without
    ground truth has no position error.
    """

    # Position in the sequence.
    index: int
    # Skipped frames could not be read, for dropped ones there was no time: they are in neither the
    # trajectory nor the map.
    status: Status
    heldout: bool
    # Why the frame is lost or missing; empty where it was tracked.
    reason: str = ""
    timestamp: float | None = None
    keyframe: bool = False
    converged: bool = False
    iterations: int = 0
    valid_share: float | None = None
    # Root mean squares: colours 0 to 1, metres.
    colour_residual: float | None = None
    depth_residual: float | None = None
    conditioning: float | None = None
    gain: float | None = None
    bias: float | None = None
    # Of the map that the frame was tracked against.
    spheres: int = 0
    map_version: int = 0
    reading_ms: float = 0.0
    tracking_ms: float = 0.0
    # What mapping a keyframe took, with the frame at which tracking got its result; else 0.
    mapping_ms: float = 0.0
    # How long tracking waited for that.
    waiting_ms: float = 0.0
    # Wall time of the frame, reading and waiting included: the parts above overlap.
    loop_ms: float = 0.0
    # What the memory budget counts, after the frame.
    memory_mb: float | None = None
    # Distance from the true position after the whole trajectory was aligned.
    position_error_cm: float | None = None
    psnr_db: float | None = None
    psnr_exposure_db: float | None = None
    ssim: float | None = None
    depth_l1_cm: float | None = None
    depth_coverage_pct: float | None = None

    @property
    def seen(self) -> bool:
        """Whether the frame went through tracking and has a pose."""
        return self.status in ("tracked", "lost")

    @staticmethod
    def of_result(result: TrackingResult, *, heldout: bool, reading_ms: float) -> FrameRecord:
        """Return the record of a frame that went through tracking."""
        return FrameRecord(
            index=result.index,
            status="tracked" if result.tracked else "lost",
            heldout=heldout,
            reason=result.reason,
            timestamp=result.timestamp,
            keyframe=result.is_keyframe,
            converged=result.converged,
            iterations=result.iterations,
            valid_share=result.valid_share,
            colour_residual=result.colour_residual,
            depth_residual=result.depth_residual,
            conditioning=result.conditioning,
            gain=result.gain,
            bias=result.bias,
            spheres=result.spheres,
            map_version=result.map_version,
            reading_ms=reading_ms,
            tracking_ms=result.tracking_ms,
            mapping_ms=result.mapping_ms,
            waiting_ms=result.waiting_ms,
            memory_mb=result.memory_mb,
        )

    @staticmethod
    def of_missing(index: int, status: Status, reason: str, *, heldout: bool) -> FrameRecord:
        """Return the record of a frame that was skipped or dropped."""
        return FrameRecord(index=index, status=status, heldout=heldout, reason=reason)
