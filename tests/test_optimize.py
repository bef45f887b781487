"""Optimisation of the map and of the window's poses."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from gsslam import _native, geometry
from gsslam.config import MappingConfig
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.optimize import MapOptimizer, sphere_rates, twist_gradient
from gsslam.raster.native import rasterize_native
from tests.raster.scenes import CAMERA, random_pose, random_spheres

LOW_PASS = 0.3


def scene(seed: int) -> tuple[GaussianMap, Keyframe]:
    """A map, and a keyframe that shows it as it should be, a little moved and recoloured."""
    rng = np.random.default_rng(seed)
    truth, T = random_spheres(rng, 500, 4.0), random_pose(rng)
    planes = rasterize_native(truth, T, CAMERA, LOW_PASS)
    rgb = (255 * planes[:3]).round().clamp(0, 255).byte()
    seen = planes[4] > 0.3
    depth = torch.where(seen, planes[3] / planes[4].clamp(min=1e-6), 0.0)
    gaussian_map = GaussianMap(600)
    noise = rng.normal(size=truth.shape) * [[0.003]] * 3 + 0
    noise[5:] *= 30
    gaussian_map.insert(truth + torch.from_numpy(noise).float())
    moved = geometry.exp_se3(np.array([2e-3, -2e-3, 3e-3, 1e-3, 2e-3, -1e-3])) @ T.numpy()
    return gaussian_map, Keyframe(0, moved, 1.0, 0.0, rgb, depth)


def test_twist_gradient_is_that_of_the_matrix_exponential() -> None:
    rng = np.random.default_rng(0)
    T, upstream = random_pose(rng), torch.from_numpy(rng.normal(size=(3, 4)))
    xi = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    v, w = xi[:3], xi[3:]
    zero = xi.new_zeros(())
    generator = torch.stack(
        [
            torch.stack([zero, -w[2], w[1], v[0]]),
            torch.stack([w[2], zero, -w[0], v[1]]),
            torch.stack([-w[1], w[0], zero, v[2]]),
            xi.new_zeros(4),
        ]
    )
    ((torch.linalg.matrix_exp(generator) @ T)[:3] * upstream).sum().backward()
    assert xi.grad is not None
    actual = twist_gradient(upstream.numpy(), T.numpy())
    assert actual == pytest.approx(xi.grad.numpy(), rel=1e-12, abs=1e-13)


def test_steps_lower_the_loss_and_bring_the_pose_back() -> None:
    gaussian_map, keyframe = scene(1)
    optimizer = MapOptimizer(MappingConfig(), CAMERA, LOW_PASS)
    losses = [optimizer.step(gaussian_map, keyframe, refine_pose=True) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
    assert np.mean(np.diff(losses) < 0) > 0.8
    assert keyframe.steps == 60
    assert not gaussian_map.gradient.any()  # each step leaves it ready for the next
    R = keyframe.T_camera_world[:3, :3]
    assert np.abs(R @ R.T - np.eye(3)).max() < 1e-12


def test_a_pose_comes_back_when_the_map_is_right() -> None:
    rng = np.random.default_rng(2)
    _, keyframe = scene(2)
    truth, T = random_spheres(rng, 500, 4.0), random_pose(rng).numpy()
    gaussian_map = GaussianMap(500)
    gaussian_map.insert(truth)
    frozen = MappingConfig(centre_rate=1e-9, radius_rate=1e-9, opacity_rate=1e-9, colour_rate=1e-9)
    optimizer = MapOptimizer(frozen, CAMERA, LOW_PASS)

    def error() -> float:
        return float(
            np.linalg.norm(geometry.log_se3(keyframe.T_camera_world @ geometry.inverse(T)))
        )

    before = error()
    for _ in range(40):
        optimizer.step(gaussian_map, keyframe, refine_pose=True)
    assert error() < 0.25 * before


def test_the_pose_stays_where_it_is_held() -> None:
    gaussian_map, keyframe = scene(3)
    before = copy.deepcopy(keyframe)
    optimizer = MapOptimizer(MappingConfig(), CAMERA, LOW_PASS)
    for _ in range(3):
        optimizer.step(gaussian_map, keyframe, refine_pose=False)
    assert np.array_equal(keyframe.T_camera_world, before.T_camera_world)
    assert (keyframe.gain, keyframe.bias, keyframe.steps) == (1.0, 0.0, 0)


def test_two_runs_and_any_number_of_threads_give_the_same_bytes() -> None:
    results = set()
    for threads in (1, 2, 3, 1):
        _native.set_thread_count(threads)
        gaussian_map, keyframe = scene(4)
        optimizer = MapOptimizer(MappingConfig(), CAMERA, LOW_PASS)
        for _ in range(5):
            optimizer.step(gaussian_map, keyframe, refine_pose=True)
        bytes_of_map = gaussian_map.parameters.numpy().tobytes()
        results.add(bytes_of_map + keyframe.T_camera_world.tobytes())
    assert len(results) == 1


def test_each_row_has_its_rate() -> None:
    rates = sphere_rates(
        MappingConfig(centre_rate=1e-1, radius_rate=2e-1, opacity_rate=3e-1, colour_rate=4e-1)
    )
    assert rates.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
