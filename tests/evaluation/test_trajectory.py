"""ATE and RPE: against evo, and their properties."""

from pathlib import Path

import numpy as np
import pytest
from evo.core import metrics
from evo.core.trajectory import PoseTrajectory3D
from hypothesis import given, settings
from hypothesis import strategies as st

from gsslam.evaluation.trajectory import (
    align_se3,
    position_errors,
    relative_errors,
    root_mean_square,
    rotation_angles,
    second_pairs,
    successive_pairs,
)
from gsslam.geometry import exp_se3
from gsslam.trajectory import Trajectory

seeds = st.integers(0, 2**32 - 1)


def walk(seed: int, count: int) -> np.ndarray:
    """A random walk of poses (count, 4, 4)."""
    rng = np.random.default_rng(seed)
    pose, poses = exp_se3(rng.normal(size=6)), []
    for _ in range(count):
        pose = pose @ exp_se3(rng.normal(size=6) * 0.05)
        poses.append(pose)
    return np.array(poses)


def perturbed(poses: np.ndarray, seed: int, size: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([pose @ exp_se3(rng.normal(size=6) * size) for pose in poses])


def evo_errors(estimate: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    """ATE in metres, RPE in metres and degrees, as evo has them."""
    times = np.arange(len(truth)) / 30
    reference = PoseTrajectory3D(poses_se3=list(truth), timestamps=times)
    # A copy: evo aligns in place.
    candidate = PoseTrajectory3D(poses_se3=list(estimate.copy()), timestamps=times)
    results = []
    for relation in (
        metrics.PoseRelation.translation_part,
        metrics.PoseRelation.rotation_angle_deg,
    ):
        rpe = metrics.RPE(relation, delta=1, delta_unit=metrics.Unit.frames, all_pairs=False)
        rpe.process_data((reference, candidate))
        results.append(rpe.get_statistic(metrics.StatisticsType.rmse))
    candidate.align(reference, correct_scale=False)
    ate = metrics.APE(metrics.PoseRelation.translation_part)
    ate.process_data((reference, candidate))
    return ate.get_statistic(metrics.StatisticsType.rmse), results[0], results[1]


def our_errors(estimate: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    shifts, angles = relative_errors(estimate, truth, successive_pairs(len(truth)))
    return (
        root_mean_square(position_errors(estimate, truth)),
        root_mean_square(shifts),
        float(np.degrees(root_mean_square(angles))),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1e-3, 0.05, 1.0])
def test_evo_agrees_on_random_trajectories(seed: int, size: float) -> None:
    truth = walk(seed, 80)
    moved = exp_se3(np.random.default_rng(seed).normal(size=6)) @ truth
    estimate = perturbed(moved, seed + 100, size)
    np.testing.assert_allclose(our_errors(estimate, truth), evo_errors(estimate, truth), rtol=1e-9)


def test_evo_agrees_on_a_real_path(data_root: Path) -> None:
    truth = Trajectory.read(data_root / "tum_fr1_xyz" / "groundtruth.txt").T_world_camera[::10]
    estimate = perturbed(exp_se3(np.array([1, 2, 3, 0.5, 0.2, 0.1])) @ truth, 1, 0.01)
    np.testing.assert_allclose(our_errors(estimate, truth), evo_errors(estimate, truth), rtol=1e-9)


def test_camera_that_never_moves_scores_the_known_error(data_root: Path) -> None:
    times = np.loadtxt(data_root / "tum_fr1_xyz" / "rgb.txt", usecols=0)
    path = Trajectory.read(data_root / "tum_fr1_xyz" / "groundtruth.txt")
    truth = np.array([pose for pose in path.nearest(times, 0.02) if pose is not None])
    still = np.tile(np.eye(4), (len(truth), 1, 1))
    # Aligned, a still camera stays at the mean position: the error is the spread of the path.
    spread = np.sqrt(truth[:, :3, 3].var(axis=0).sum())
    assert 100 * root_mean_square(position_errors(still, truth)) == pytest.approx(18.6, abs=0.1)
    assert root_mean_square(position_errors(still, truth)) == pytest.approx(spread, rel=1e-9)


@given(seeds, st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_rigid_motion_of_the_estimate_costs_nothing(seed: int, count: int) -> None:
    truth = walk(seed, count)
    motion = exp_se3(np.random.default_rng(seed).normal(size=6))
    assert position_errors(motion @ truth, truth).max() < 1e-12 * 1e2
    shifts, angles = relative_errors(motion @ truth, truth, successive_pairs(count))
    assert np.all(shifts < 1e-12 * 1e2) and np.all(angles < 1e-12 * 1e2)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_alignment_is_a_rigid_motion_that_no_small_change_improves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    estimate, truth = rng.normal(size=(20, 3)), rng.normal(size=(20, 3))
    T = align_se3(estimate, truth)
    R = T[:3, :3]
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(R) == pytest.approx(1)

    def cost(motion: np.ndarray) -> float:
        return float(np.sum((estimate @ motion[:3, :3].T + motion[:3, 3] - truth) ** 2))

    for _ in range(10):
        assert cost(exp_se3(rng.normal(size=6) * 1e-3) @ T) >= cost(T)


def test_scale_is_not_fitted() -> None:
    truth = walk(3, 50)
    estimate = truth.copy()
    estimate[:, :3, 3] *= 2
    spread = np.sqrt(truth[:, :3, 3].var(axis=0).sum())
    assert root_mean_square(position_errors(estimate, truth)) == pytest.approx(spread, rel=1e-9)


def test_points_on_a_line_and_mirrored_points_give_a_proper_rotation() -> None:
    line = np.outer(np.arange(5.0), [1, 2, 3])
    np.testing.assert_allclose(np.linalg.det(align_se3(line, line)[:3, :3]), 1)
    points = np.random.default_rng(0).normal(size=(10, 3))
    mirrored = points * [1, 1, -1]
    np.testing.assert_allclose(np.linalg.det(align_se3(points, mirrored)[:3, :3]), 1)
    np.testing.assert_allclose(np.linalg.det(align_se3(points[:1], points[:1])[:3, :3]), 1)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-5, 1.0, 3.0, np.pi - 1e-7, np.pi])
def test_rotation_angles_keep_their_digits(angle: float) -> None:
    R = exp_se3(np.array([0, 0, 0, 0.6 * angle, 0, 0.8 * angle]))[None, :3, :3]
    assert rotation_angles(R)[0] == pytest.approx(angle, rel=1e-9, abs=1e-15)


def test_constant_drift_has_the_relative_error_of_one_step() -> None:
    truth = np.tile(np.eye(4), (31, 1, 1))
    drift = truth.copy()
    drift[:, 0, 3] = 0.01 * np.arange(31)
    shifts, angles = relative_errors(drift, truth, successive_pairs(31))
    np.testing.assert_allclose(shifts, 0.01)
    assert np.all(angles == 0)
    shifts, _ = relative_errors(drift, truth, second_pairs(np.arange(31) / 10))
    np.testing.assert_allclose(shifts, 0.1)


def test_pairs_a_second_apart() -> None:
    assert second_pairs(np.array([0.0, 0.5, 1.02, 1.48, 9.0])).tolist() == [[0, 2], [1, 3]]
    assert second_pairs(np.array([0.0])).shape == (0, 2)
    assert second_pairs(np.zeros(0)).shape == (0, 2)
    assert successive_pairs(3).tolist() == [[0, 1], [1, 2]]
    assert successive_pairs(1).shape == successive_pairs(0).shape == (0, 2)
