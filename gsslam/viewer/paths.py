"""The way of the camera while it is still being found, and how far it is from the truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gsslam.evaluation.trajectory import align_se3, root_mean_square
from gsslam.geometry import inverse
from gsslam.tracked_frames import TrackedFrames

Array = NDArray[np.float64]

# With fewer positions than this the first pose aligns the truth: they leave its rotation open.
_ENOUGH_POSITIONS = 10


class LivePath:
    """The newest poses of all frames, read from those that the run keeps."""

    def __init__(self, frames: TrackedFrames) -> None:
        self._frames = frames
        self._references = np.empty(0, dtype=np.int64)
        self._relative = np.empty((0, 4, 4))

    def __len__(self) -> int:
        return len(self._relative)

    def keyframes(self) -> Array:
        """Return T_world_camera of the keyframes, (K, 4, 4)."""
        return inverse(np.array(self._frames.keyframe_poses).reshape(-1, 4, 4))

    def poses(self) -> Array:
        """Return T_world_camera of the frames so far, (N, 4, 4)."""
        references, relative = self._frames.since(len(self))
        if relative:
            self._references = np.append(self._references, references)
            self._relative = np.concatenate([self._relative, np.array(relative)])
        # Read after the references, so that all of these are among them.
        keyframes = np.array(self._frames.keyframe_poses).reshape(-1, 4, 4)
        return inverse(self._relative @ keyframes[self._references])


def truth_in_world(estimate: Array, truth: Array) -> Array:
    """Return the true poses (N, 4, 4) in the world of the estimated ones (N, 4, 4), N > 0."""
    if len(truth) < _ENOUGH_POSITIONS:
        return np.asarray(estimate[0] @ inverse(truth[0]) @ truth)
    return np.asarray(align_se3(truth[:, :3, 3], estimate[:, :3, 3]) @ truth)


def ate_cm(estimate: Array, truth_in_world: Array) -> float:
    """Return the root mean square distance of positions, once the truth is in the same world."""
    errors = np.linalg.norm(estimate[:, :3, 3] - truth_in_world[:, :3, 3], axis=1)
    return 100 * root_mean_square(errors)
