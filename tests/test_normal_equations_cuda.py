"""The normal equations on CUDA against automatic differentiation of the reference."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from gsslam.normal_equations import (
    NormalEquationSolver,
    ResidualWeights,
    normal_equations_reference,
)
from gsslam.raster import constants
from gsslam.raster.plan import RasterPlan
from gsslam.raster.reference import rasterize_reference
from tests.raster.scenes import CAMERA, random_pose, random_spheres

LOW_PASS = constants.DEFAULT_LOW_PASS
WEIGHTS = ResidualWeights(0.05, 0.05, 0.01, 0.003, 0.5)


def observation(rng, spheres, T) -> tuple[torch.Tensor, torch.Tensor]:
    """Return colours (3, H, W) and depth (H, W) that the map is near to, with outliers and holes."""
    planes = rasterize_reference(spheres, T, CAMERA, LOW_PASS)
    depth = planes[3] / planes[4].clamp(min=1e-3)
    depth = depth * torch.from_numpy(1 + 0.02 * rng.normal(size=depth.shape))
    holes = torch.from_numpy(rng.uniform(size=depth.shape))
    depth[holes < 0.2] = 0
    depth[(holes > 0.2) & (holes < 0.25)] = float("inf")
    noise = torch.from_numpy(rng.normal(size=(3, *depth.shape)))
    return (planes[:3] + 0.05 * noise).float().contiguous(), depth.float()


@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_matches_automatic_differentiation(device, sigma):
    rng = np.random.default_rng(int(sigma))
    spheres, T = random_spheres(rng, 400, sigma), random_pose(rng)
    spheres[4] += 2
    rgb, depth = observation(rng, spheres, T)
    plan = RasterPlan(device=device)
    plan.project(spheres.to(device), spheres.shape[1], CAMERA, T.numpy(), LOW_PASS)
    solver = NormalEquationSolver(WEIGHTS, device)
    ours = solver.form(plan, rgb.to(device), depth.to(device), 1.1, -0.02)
    expected = normal_equations_reference(
        spheres, T, CAMERA, LOW_PASS, rgb, depth, 1.1, -0.02, WEIGHTS
    )
    assert expected.pixels > 300
    assert expected.depth_pixels > 200
    for field in fields(expected):
        actual, truth = getattr(ours, field.name), getattr(expected, field.name)
        difference = np.linalg.norm(np.asarray(actual) - truth)
        assert difference < 2e-5 * np.linalg.norm(truth), field.name


def test_nothing_to_see_gives_zeros(device):
    plan = RasterPlan(device=device)
    spheres = torch.zeros(8, 3, device=device)
    spheres[2] = -1
    plan.project(spheres, 3, CAMERA, np.eye(4), LOW_PASS)
    rgb = torch.rand(3, CAMERA.height, CAMERA.width, device=device)
    equations = NormalEquationSolver(WEIGHTS, device).form(plan, rgb, rgb[0].contiguous(), 1, 0)
    assert equations.pixels == 0
    assert not equations.hessian.any()
    assert equations.mean_cost() == float("inf")
