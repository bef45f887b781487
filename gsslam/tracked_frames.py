"""The poses of all frames so far, kept relative to keyframes so that they follow their refinement.

The keyframes' poses are those that tracking may know: as submitted until mapping's result is taken,
and as refined from then on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.trajectory import Trajectory

Array = NDArray[np.float64]


class TrackedFrames:
    """Timestamps and poses in tracking order."""

    def __init__(self) -> None:
        self._timestamps: list[float] = []
        # By frame: its reference keyframe and T_camera_keyframe, (4, 4).
        self._references: list[int] = []
        self._relative: list[Array] = []
        # By keyframe: T_camera_world, (4, 4).
        self._keyframes: list[Array] = []

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def keyframe_poses(self) -> list[Array]:
        """T_camera_world of the keyframes, oldest first."""
        return self._keyframes

    def add_keyframe(self, T_camera_world: Array) -> None:
        """Make a keyframe the reference of the frames to come, beginning with its own."""
        self._keyframes.append(T_camera_world)

    def refine(self, poses: list[Array]) -> None:
        """Replace T_camera_world of all keyframes."""
        self._keyframes = list(poses)

    def add(self, timestamp: float, T_camera_world: Array) -> None:
        """Append a frame, by its pose relative to the newest keyframe."""
        self._timestamps.append(timestamp)
        self._references.append(len(self._keyframes) - 1)
        self._relative.append(T_camera_world @ geometry.inverse(self._keyframes[-1]))

    def pose(self, i: int) -> Array:
        """Return T_camera_world of the i-th frame, by its keyframe's newest pose."""
        return self._relative[i] @ self._keyframes[self._references[i]]

    def since(self, first: int) -> tuple[list[int], list[Array]]:
        """Return reference keyframes and T_camera_keyframe of the frames from ``first`` on.

        Any thread may ask: frames are only ever added, their relative pose last.
        """
        relative = self._relative[first:]
        return self._references[first : first + len(relative)], relative

    def predictions(self, *, moving: bool) -> list[Array]:
        """Return guesses of the next T_camera_world: constant velocity, half of it, no motion.

        Only the last where the motion between the two last frames is not known.
        """
        last = self.pose(-1)
        if len(self) < 2 or not moving:
            return [last]
        velocity = geometry.log_se3(last @ geometry.inverse(self.pose(-2)))
        return [geometry.moved(last, share * velocity) for share in (1.0, 0.5, 0.0)]

    def trajectory(self) -> Trajectory:
        """Return all poses, camera points to world points."""
        poses = [geometry.inverse(self.pose(i)) for i in range(len(self))]
        return Trajectory(np.array(self._timestamps), np.array(poses).reshape(-1, 4, 4))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return everything as arrays."""
        return {
            "timestamps": np.array(self._timestamps, dtype=np.float64),
            "references": np.array(self._references, dtype=np.int64),
            "relative": np.array(self._relative, dtype=np.float64).reshape(-1, 4, 4),
            "keyframes": np.array(self._keyframes, dtype=np.float64).reshape(-1, 4, 4),
        }

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take over what ``state`` returned."""
        self._timestamps = state["timestamps"].tolist()
        self._references = state["references"].tolist()
        self._relative = list(state["relative"].astype(np.float64))
        self._keyframes = list(state["keyframes"].astype(np.float64))
