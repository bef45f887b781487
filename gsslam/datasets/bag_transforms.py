"""The tree of frames that a recording's tf messages describe."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsslam.geometry import exp_se3, inverse, log_se3, matrix_from_quaternion

Array = NDArray[np.float64]

# Poses farther apart in time (seconds) are not interpolated.
_LONGEST_GAP = 0.2
# A chain of frames longer than this goes round in a circle.
_LONGEST_CHAIN = 64


class TransformTree:
    """Frames, each with its parent and the poses that it had in it."""

    def __init__(self) -> None:
        # By child: the parent, and times (ns) with poses (4, 4), child points to parent points.
        self._parents: dict[str, str] = {}
        self._poses: dict[str, list[tuple[int, Array]]] = {}
        self._sorted: dict[str, tuple[NDArray[np.int64], Array]] = {}

    def add(self, message: Any) -> None:
        """Take in a TFMessage; poses that are not finite or no rotations are left out."""
        for transform in message.transforms:
            child = _plain(transform.child_frame_id)
            stamp = transform.header.stamp
            t, q = transform.transform.translation, transform.transform.rotation
            numbers = np.array([t.x, t.y, t.z, q.x, q.y, q.z, q.w], dtype=np.float64)
            if not np.isfinite(numbers).all() or np.linalg.norm(numbers[3:]) < 1e-3:
                continue
            pose = np.eye(4)
            pose[:3, :3] = matrix_from_quaternion(numbers[3:])
            pose[:3, 3] = numbers[:3]
            self._parents[child] = _plain(transform.header.frame_id)
            self._poses.setdefault(child, []).append((_nanoseconds(stamp), pose))
            self._sorted.pop(child, None)

    def chain(self, frame: str) -> list[str]:
        """Return ``frame``, its parent, and so on up to the root."""
        chain = [_plain(frame)]
        while chain[-1] in self._parents and len(chain) < _LONGEST_CHAIN:
            chain.append(self._parents[chain[-1]])
        return chain

    def moves(self, frame: str) -> bool:
        """Tell whether ``frame`` had more than one pose in its parent."""
        poses = self._poses.get(frame, [])
        return any(not np.array_equal(pose, poses[0][1]) for _, pose in poses)

    def pose(self, frame: str, ancestor: str, time: int) -> Array | None:
        """Return ``frame`` in ``ancestor`` (4, 4) at ``time`` (ns); None where nothing says it."""
        T = np.eye(4)
        for link in self.chain(frame):
            if link == _plain(ancestor):
                return T
            step = self._at(link, time)
            if step is None:
                return None
            T = step @ T
        return None

    def between(self, target: str, source: str) -> Array | None:
        """Return ``source`` points to ``target`` points (4, 4), both fixed to the same thing."""
        above = self.chain(target)
        common = next((frame for frame in self.chain(source) if frame in above), None)
        if common is None:
            return None
        links = [*self._below(target, common), *self._below(source, common)]
        if any(self.moves(link) for link in links):
            return None
        T_common_target = self.pose(target, common, 0)
        T_common_source = self.pose(source, common, 0)
        if T_common_target is None or T_common_source is None:
            return None
        return inverse(T_common_target) @ T_common_source

    def _below(self, frame: str, ancestor: str) -> list[str]:
        chain = self.chain(frame)
        return chain[: chain.index(ancestor)]

    def _at(self, frame: str, time: int) -> Array | None:
        """Return the pose of ``frame`` in its parent, between the two nearest in time."""
        if frame not in self._poses:
            return None
        if not self.moves(frame):
            return self._poses[frame][0][1]
        if frame not in self._sorted:
            ordered = sorted(self._poses[frame], key=lambda entry: entry[0])
            times = np.array([t for t, _ in ordered], dtype=np.int64)
            self._sorted[frame] = times, np.stack([pose for _, pose in ordered])
        times, poses = self._sorted[frame]
        after = int(np.searchsorted(times, time))
        if after < len(times) and times[after] == time:
            return np.asarray(poses[after])
        if after in (0, len(times)) or times[after] - times[after - 1] > _LONGEST_GAP * 1e9:
            return None
        before = after - 1
        share = (time - times[before]) / (times[after] - times[before])
        step = log_se3(inverse(poses[before]) @ poses[after])
        return np.asarray(poses[before] @ exp_se3(share * step))


def _plain(frame: str) -> str:
    """Return the name of a frame without the slash that ROS 1 puts first."""
    return str(frame).lstrip("/")


def _nanoseconds(stamp: Any) -> int:
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
