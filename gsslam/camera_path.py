"""Paths of a camera for pictures of a map: around what was seen, along the run, or from a file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.errors import ConfigError
from gsslam.geometry import exp_se3, log_so3, orthonormalized
from gsslam.rendering import MapRenderer
from gsslam.trajectory import Trajectory

Array = NDArray[np.float64]

# Radius of the orbit, as a share of the distance of what it looks at; its height, of its radius.
_ORBIT_RADIUS, _ORBIT_HEIGHT = 0.25, 0.4
# Where nothing is seen, the camera looks at a point this far away.
_DEFAULT_DISTANCE_M = 1.0
# Standard deviation of the weights by which a hand's tremor is averaged away.
_SMOOTHING_S = 0.25


def orbit(trajectory: Trajectory, renderer: MapRenderer, camera: Camera, count: int) -> Array:
    """Return ``count`` poses (count, 4, 4) on an ellipse, all looking at the same point.

    It begins and ends to the right of the pose of ``trajectory`` that is nearest to the middle of
    all, and looks at what that pose has before it.
    """
    positions = trajectory.T_world_camera[:, :3, 3]
    middle = np.linalg.norm(positions - positions.mean(axis=0), axis=1).argmin()
    pose = trajectory.T_world_camera[middle]
    distance = _distance_ahead(renderer, camera, pose)
    centre, (right, down, ahead) = pose[:3, 3], pose[:3, :3].T
    target = centre + distance * ahead
    poses = []
    for angle in np.linspace(0, 2 * np.pi, count):
        sideways = np.cos(angle) * right + _ORBIT_HEIGHT * np.sin(angle) * down
        poses.append(looking_at(centre + _ORBIT_RADIUS * distance * sideways, target, down))
    return np.array(poses)


def _distance_ahead(renderer: MapRenderer, camera: Camera, pose: Array) -> float:
    """Return the median depth in the middle of the view from ``pose``, metres."""
    depth = renderer.render(pose, camera).depth
    height, width = depth.shape
    middle = depth[height // 4 : height - height // 4, width // 4 : width - width // 4]
    seen = middle[middle > 0]
    return float(np.median(seen)) if seen.size else _DEFAULT_DISTANCE_M


def looking_at(eye: Array, target: Array, down: Array) -> Array:
    """Return the pose (4, 4) at ``eye`` that looks at ``target``, with ``down`` (3,) below."""
    ahead = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(down, ahead)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :4] = np.stack([right, np.cross(ahead, right), ahead, eye], axis=1)
    return pose


def smoothed(trajectory: Trajectory, count: int) -> Array:
    """Return ``count`` poses (count, 4, 4) along ``trajectory``, evenly spaced in time.

    Each is a mean of the poses around its time, with Gaussian weights.
    """
    times = trajectory.timestamps
    wanted = np.linspace(times[0], times[-1], count)
    poses = []
    for time in wanted:
        # Relative to the nearest, so that some weight remains where frames are far apart.
        squares = ((times - time) / _SMOOTHING_S) ** 2
        weights = np.exp(-0.5 * (squares - squares.min()))
        mean = np.tensordot(weights / weights.sum(), trajectory.T_world_camera, axes=1)
        poses.append(orthonormalized(mean))
    return np.array(poses)


def interpolated(trajectory: Trajectory, count: int) -> Array:
    """Return ``count`` poses (count, 4, 4) through all poses of ``trajectory``, evenly in time.

    Positions on a cubic Hermite spline with central differences as tangents (Catmull and Rom 1974),
    rotations at constant speed between two poses. Raises ConfigError where there are not two
    different times.
    """
    times, first = np.unique(trajectory.timestamps, return_index=True)
    if len(times) < 2:
        raise ConfigError("a camera path needs at least two poses at different times")
    poses = trajectory.T_world_camera[first]
    tangents = np.gradient(poses[:, :3, 3], times, axis=0)
    result = []
    for time in np.linspace(times[0], times[-1], count):
        i = int(np.clip(np.searchsorted(times, time, side="right") - 1, 0, len(times) - 2))
        span = times[i + 1] - times[i]
        s = (time - times[i]) / span
        pose = np.eye(4)
        turn = log_so3(poses[i, :3, :3].T @ poses[i + 1, :3, :3])
        twist = np.concatenate([np.zeros(3), s * turn])
        pose[:3, :3] = poses[i, :3, :3] @ exp_se3(twist)[:3, :3]
        start, end = poses[i, :3, 3], poses[i + 1, :3, 3]
        pose[:3, 3] = (
            (1 + 2 * s) * (1 - s) ** 2 * start
            + s * s * (3 - 2 * s) * end
            + s * (1 - s) ** 2 * span * tangents[i]
            + s * s * (s - 1) * span * tangents[i + 1]
        )
        result.append(pose)
    return np.array(result)
