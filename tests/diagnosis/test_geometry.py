"""The test by reprojection on exact points, where every answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsslam.camera import Camera
from gsslam.diagnosis.geometry import Matches, check_geometry, fit_intrinsics, residuals
from gsslam.geometry import exp_se3, inverse

CAMERA = Camera(640, 480, 525.0, 520.0, 315.0, 245.0)


def exact(seed: int, count: int = 300, noise: float = 0.2) -> Matches:
    """Return points seen from three pairs of poses, to ``noise`` pixels."""
    rng = np.random.default_rng(seed)
    parts = []
    for pair in range(3):
        first = exp_se3(rng.normal(size=6))
        second = first @ exp_se3(np.concatenate([0.08, 0.04] * rng.normal(size=(3, 2)), axis=None))
        pixels = rng.uniform([0, 0], [CAMERA.width, CAMERA.height], (count, 2))
        z = rng.uniform(0.8, 4.0, count)
        rays = np.column_stack([pixels, np.ones(count)]) @ np.linalg.inv(CAMERA.matrix()).T
        points = (rays * z[:, None]) @ (inverse(second) @ first)[:3, :3].T
        points += (inverse(second) @ first)[:3, 3]
        seen = points @ CAMERA.matrix().T
        to = seen[:, :2] / seen[:, 2:] + noise * rng.normal(size=(count, 2))
        poses = (np.broadcast_to(T, (count, 4, 4)) for T in (first, second))
        parts.append((pixels, to, z, *poses, np.full(count, pair)))
    return Matches(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def test_exact_points_have_no_residual() -> None:
    assert residuals(exact(0, noise=0.0), CAMERA).max() < 1e-6
    assert check_geometry(exact(0), CAMERA) is None


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.floats(0.75, 1.35), st.floats(-40, 40))
def test_intrinsics_are_found_again(seed: int, factor: float, shift: float) -> None:
    wrong = replace(CAMERA, fx=CAMERA.fx * factor, fy=CAMERA.fy * factor, cx=CAMERA.cx + shift)
    # Points are given by pixel and depth, so that a wrong camera means wrong points.
    fitted = fit_intrinsics(exact(seed), wrong)
    assert fitted.fx == pytest.approx(CAMERA.fx, rel=0.05)
    assert np.median(residuals(exact(seed), fitted)) < 1.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [5, 0.2, 1000, 0.001, 2])
def test_a_depth_scale_is_found_again(seed: int, factor: float) -> None:
    good = exact(seed)
    finding = check_geometry(replace(good, depth=good.depth * factor), CAMERA, 5000 / factor)
    assert finding is not None
    assert finding.check == "depth-scale"
    assert "set the depth scale to 5000" in finding.fix


def test_few_corners_no_poses_or_no_motion_say_nothing() -> None:
    good = exact(0)
    wrong = replace(good, depth=good.depth * 5)
    few = wrong.of_pairs(np.arange(len(wrong.depth)) < 20)
    assert check_geometry(few, CAMERA) is None
    still = replace(wrong, T_world_second=wrong.T_world_first, to_pixels=wrong.from_pixels)
    assert check_geometry(still, CAMERA) is None
    assert check_geometry(Matches.of([]), CAMERA) is None


def test_points_behind_the_camera_count_as_lost() -> None:
    good = exact(0)
    behind = replace(good, T_world_second=good.T_world_second @ np.diag([-1.0, 1.0, -1.0, 1.0]))
    assert (residuals(behind, CAMERA) == 2 * CAMERA.width).all()
