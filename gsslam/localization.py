"""Where the camera is: by tracking it from frame to frame, and by search where that fails.

The search compares keyframes with the frame as small images without their mean, as in Klein and
Murray, "Improving the agility of keyframe-based SLAM" (2008), section 2.3.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam.config import TrackingConfig
from gsslam.memory import THUMBNAIL_BYTES, THUMBNAIL_PIXELS, MemoryUse
from gsslam.pyramid import ImageLevel
from gsslam.slam_state import Arrays
from gsslam.snapshot import MapSnapshot
from gsslam.tracked_frames import TrackedFrames
from gsslam.tracking import PoseEstimate, Tracker

# So many frames say which colour residual is usual.
_RECENT_FRAMES = 8


class Localizer:
    """Finds the pose of a frame in a snapshot of the map."""

    def __init__(self, config: TrackingConfig, low_pass: float, device: torch.device) -> None:
        self._config = config
        self._tracker = Tracker(config, low_pass, device)
        self._thumbnails: list[NDArray[np.float32]] = []
        # Colour residuals of the last tracked frames.
        self._recent_residuals: deque[float] = deque(maxlen=_RECENT_FRAMES)

    def add_keyframe(self, rgb: torch.Tensor) -> None:
        """Remember what a keyframe looks like, (3, H, W) 0 to 1, to search for the camera there."""
        self._thumbnails.append(thumbnail(rgb))

    def memory(self) -> MemoryUse:
        """Return what the tracker and the small images take."""
        thumbnails = THUMBNAIL_BYTES * len(self._thumbnails)
        return self._tracker.memory() + MemoryUse(keyframes=thumbnails)

    def state(self) -> Arrays:
        """Return everything as arrays."""
        return {
            "thumbnails": np.array(self._thumbnails, dtype=np.float32),
            "recent_residuals": np.array(self._recent_residuals, dtype=np.float64),
        }

    def restore(self, state: Arrays) -> None:
        """Take over what ``state`` returned."""
        self._thumbnails = list(state["thumbnails"].astype(np.float32))
        self._recent_residuals.extend(state["recent_residuals"].tolist())

    def find(
        self,
        pyramid: list[ImageLevel],
        snapshot: MapSnapshot,
        frames: TrackedFrames,
        exposure: tuple[float, float],
        *,
        moving: bool,
    ) -> tuple[PoseEstimate, str]:
        """Return the frame's pose, and why it cannot be trusted, if so.

        ``moving`` says that the motion between the two last of ``frames`` is known.
        """
        guesses = frames.predictions(moving=moving)
        estimate = self._estimate(pyramid, snapshot, guesses, exposure)
        reason = self._verdict(estimate)
        if reason:
            recovered = self._search(pyramid, snapshot, frames, guesses, exposure)
            if not self._verdict(recovered):
                estimate, reason = recovered, ""
        if not reason:
            self._recent_residuals.append(estimate.equations.colour_rms)
        return estimate, reason

    def _search(
        self,
        pyramid: list[ImageLevel],
        snapshot: MapSnapshot,
        frames: TrackedFrames,
        guesses: list[NDArray[np.float64]],
        exposure: tuple[float, float],
    ) -> PoseEstimate:
        """Refine all places where the camera may be at the coarsest level, and the best fully."""
        alike = most_alike(
            thumbnail(pyramid[0].rgb), self._thumbnails, self._config.recovery_keyframes
        )
        places = [*guesses, *(frames.keyframe_poses[index] for index in alike)]
        tried = [self._estimate(pyramid[-1:], snapshot, [place], exposure) for place in places]
        best = min(tried, key=lambda e: (e.verdict(self._config) != "", e.equations.mean_cost()))
        return self._estimate(pyramid, snapshot, [best.T_camera_world], exposure)

    def _verdict(self, estimate: PoseEstimate) -> str:
        """Return why the estimate cannot be trusted, in view of the frames before it as well."""
        reason = estimate.verdict(self._config)
        if reason or not self._recent_residuals:
            return reason
        usual = float(np.median(self._recent_residuals))
        residual = estimate.equations.colour_rms
        if residual > max(self._config.max_residual_rise * usual, self._config.usual_residual):
            return f"the colour residual rose from {usual:.3f} to {residual:.3f}"
        return ""

    def _estimate(
        self,
        pyramid: list[ImageLevel],
        snapshot: MapSnapshot,
        guesses: list[NDArray[np.float64]],
        exposure: tuple[float, float],
    ) -> PoseEstimate:
        return self._tracker.estimate(
            snapshot.parameters, snapshot.count, pyramid, guesses, *exposure
        )


def thumbnail(rgb: torch.Tensor) -> NDArray[np.float32]:
    """Return a small grey image of ``rgb`` (3, H, W), flat, with mean 0 and norm 1.

    A blank image gives zeros.
    """
    small = torch.nn.functional.adaptive_avg_pool2d(rgb.mean(dim=0)[None], THUMBNAIL_PIXELS)
    flat: NDArray[np.float32] = small.cpu().numpy().ravel()
    centred = flat - flat.mean(dtype=np.float32)
    norm = float(np.sqrt((centred**2).sum()))
    return centred / norm if norm > 1e-4 else np.zeros_like(centred)


def most_alike(
    image: NDArray[np.float32], thumbnails: list[NDArray[np.float32]], count: int
) -> list[int]:
    """Return the indices of the ``count`` thumbnails most like ``image``, best first."""
    if not thumbnails or not image.any():
        return []
    # Not by a matrix product, whose last digits depend on BLAS's threads.
    likeness = (np.stack(thumbnails) * image).sum(axis=1)  # (K,) normalised correlation
    return [int(index) for index in np.argsort(-likeness, kind="stable")[:count]]
