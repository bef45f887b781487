"""Paths of a camera for pictures: smooth, and where they should be."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.camera_path import interpolated, looking_at, orbit, smoothed
from gsslam.errors import ConfigError
from gsslam.geometry import exp_se3, inverse, log_se3
from gsslam.rendering import MapRenderer
from gsslam.results import SphereState
from gsslam.trajectory import Trajectory

Array = NDArray[np.float64]
CAMERA = Camera(64, 48, 60.0, 60.0, 32.0, 24.0)


def wall(z: float) -> MapRenderer:
    """Spheres on a plane across the z axis."""
    x, y = np.meshgrid(np.linspace(-2, 2, 60), np.linspace(-2, 2, 60))
    xyz = np.stack([x.ravel(), y.ravel(), np.full(x.size, z)], axis=1).astype(np.float32)
    ones = np.ones(len(xyz), np.float32)
    return MapRenderer(SphereState(xyz, np.log(0.05) * ones, 4 * ones, xyz * 0 + 0.5), 0.3)


def shaky(count: int) -> tuple[Trajectory, Array]:
    """A slow turn and shift, with a tremor that has no mean; and the same without it."""
    rng = np.random.default_rng(0)
    times = np.arange(count) / 30
    steady = np.array([exp_se3(np.array([0.2 * t, 0, 0, 0, 0.3 * t, 0])) for t in times])
    tremor = np.array([exp_se3(0.01 * xi) for xi in rng.normal(size=(count, 6))])
    return Trajectory(times, steady @ tremor), steady


def are_rotations(poses: Array) -> bool:
    R = poses[:, :3, :3]
    return bool(
        np.allclose(R @ R.swapaxes(1, 2), np.eye(3), atol=1e-9) & (np.linalg.det(R) > 0).all()
    )


def test_an_orbit_looks_at_one_point_and_closes() -> None:
    eye = np.eye(4)[None]
    poses = orbit(Trajectory(np.zeros(1), eye), wall(2.0), CAMERA, 41)
    assert are_rotations(poses)
    np.testing.assert_allclose(poses[0], poses[-1], atol=1e-12)
    # The wall is two metres away: all see the same point in the middle, from half a metre aside.
    in_camera = inverse(poses) @ np.array([0, 0, 2.0, 1])
    np.testing.assert_allclose(in_camera[:, :2], 0, atol=0.02)
    assert (in_camera[:, 2] > 1.9).all()
    aside = np.linalg.norm(poses[:, :2, 3], axis=1)
    assert aside.max() == pytest.approx(0.5, rel=0.02)
    assert aside.min() > 0.15
    assert (poses[:, 1, 1] > 0.9).all()  # what is below stays below
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    assert steps.max() < 0.1


def test_an_orbit_where_nothing_is_seen() -> None:
    poses = orbit(Trajectory(np.zeros(1), np.eye(4)[None]), wall(-2.0), CAMERA, 5)
    assert np.isfinite(poses).all()


def test_looking_at() -> None:
    pose = looking_at(np.array([1.0, 0, 0]), np.array([1.0, 0, 5]), np.array([0.0, 1, 0]))
    np.testing.assert_allclose(pose[:3, :3], np.eye(3), atol=1e-12)
    np.testing.assert_array_equal(pose[:3, 3], [1, 0, 0])


def test_smoothing_takes_the_tremor_and_leaves_the_path() -> None:
    trajectory, steady = shaky(90)
    poses = smoothed(trajectory, 90)
    assert are_rotations(poses)
    inner = slice(20, -20)  # at the ends the mean leans inwards
    errors = [np.linalg.norm(log_se3(inverse(a) @ b)) for a, b in zip(poses, steady, strict=True)]
    before = [
        np.linalg.norm(log_se3(inverse(a) @ b))
        for a, b in zip(trajectory.T_world_camera, steady, strict=True)
    ]
    assert np.mean(errors[inner]) < 0.4 * np.mean(before[inner])


def accelerations(poses: Array) -> float:
    return float(np.linalg.norm(np.diff(poses[:, :3, 3], n=2, axis=0), axis=1).max())


def test_a_smoothed_path_is_smooth() -> None:
    trajectory, _ = shaky(90)
    assert accelerations(smoothed(trajectory, 90)) < 0.1 * accelerations(trajectory.T_world_camera)


def test_far_apart_frames_can_be_smoothed() -> None:
    trajectory = Trajectory(np.array([0.0, 100.0]), np.array([np.eye(4), exp_se3(np.ones(6))]))
    poses = smoothed(trajectory, 4)
    assert np.isfinite(poses).all()
    np.testing.assert_allclose(poses[0], np.eye(4), atol=1e-12)


def test_a_path_through_poses_meets_them_and_is_smooth() -> None:
    rng = np.random.default_rng(1)
    times = np.array([0.0, 1, 2, 4])
    given = np.array([exp_se3(xi) for xi in rng.normal(scale=0.5, size=(4, 6))])
    poses = interpolated(Trajectory(times, given), 401)
    assert are_rotations(poses)
    for place, pose in zip((0, 100, 200, 400), given, strict=True):
        np.testing.assert_allclose(poses[place], pose, atol=1e-9)
    # No jump in speed: of the order of a step, the acceleration is small everywhere.
    speed = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    assert accelerations(poses) < 0.1 * speed.max()


def test_a_straight_line_is_kept_at_constant_speed() -> None:
    times = np.array([0.0, 0.5, 2.0])
    given = np.tile(np.eye(4), (3, 1, 1))
    given[:, 0, 3] = times
    poses = interpolated(Trajectory(times, given), 9)
    np.testing.assert_allclose(poses[:, 0, 3], np.linspace(0, 2, 9), atol=1e-12)


@pytest.mark.parametrize("times", [[0.0], [1.0, 1.0]])
def test_one_time_makes_no_path(times: list[float]) -> None:
    poses = np.tile(np.eye(4), (len(times), 1, 1))
    with pytest.raises(ConfigError, match="at least two poses at different times"):
        interpolated(Trajectory(np.array(times), poses), 5)
