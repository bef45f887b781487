"""Where new spheres come from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.config import DensifyConfig
from gsslam.densify import filled_depth, spheres_from_pixels, unexplained_pixels
from gsslam.raster.plan import RasterPlan

CAMERA = Camera(24, 16, 20.0, 21.0, 12.5, 7.5)
T_CAMERA_WORLD = geometry.exp_se3(np.array([0.3, -0.2, 0.1, 0.2, -0.4, 0.3]))


def planes(silhouette: float, expected: float) -> torch.Tensor:
    """A rendering (5, 2, 3) with the same coverage and expected depth everywhere."""
    image = torch.zeros(5, 2, 3)
    image[3], image[4] = expected * silhouette, silhouette
    return image


def test_open_and_too_distant_pixels_are_unexplained() -> None:
    config = DensifyConfig(silhouette_threshold=0.6, behind_share=0.05, max_depth=10)
    depth = torch.full((2, 3), 2.0)
    assert not unexplained_pixels(planes(0.9, 2.0), depth, config).any()
    assert unexplained_pixels(planes(0.59, 2.0), depth, config).all()
    assert not unexplained_pixels(planes(0.9, 2.09), depth, config).any()
    assert unexplained_pixels(planes(0.9, 2.11), depth, config).all()
    # A surface in front of the measurement hides it: the optimiser's business.
    assert not unexplained_pixels(planes(0.9, 1.0), depth, config).any()


UNMEASURED = [0.0, -1.0, float("nan"), float("inf"), 10.5]


@pytest.mark.parametrize("bad", UNMEASURED)
def test_no_measurement_makes_a_sphere_only_where_gaps_are_filled(bad: float) -> None:
    depth = torch.full((2, 3), 2.0)
    depth[1, 1] = bad
    config = DensifyConfig(max_depth=10, fill_unmeasured=False)
    mask = unexplained_pixels(planes(0.0, 0.0), depth, config)
    assert not mask[1, 1]
    assert int(mask.sum()) == 5
    config = DensifyConfig(max_depth=10, fill_unmeasured=True)
    assert unexplained_pixels(planes(0.0, 0.0), depth, config).all()
    assert not unexplained_pixels(planes(0.9, 2.0), depth, config).any()


def test_gaps_take_the_nearest_measurement() -> None:
    config = DensifyConfig(max_depth=10)
    depth = torch.zeros(9, 12)
    depth[2, 3], depth[7, 10] = 1.5, 4.0
    depth[0, :5] = torch.tensor(UNMEASURED)
    everything = torch.ones_like(depth, dtype=torch.bool)
    filled = filled_depth(depth, everything, config)
    rows, columns = torch.meshgrid(torch.arange(9), torch.arange(12), indexing="ij")
    first = torch.hypot(rows - 2.0, columns - 3.0)
    second = torch.hypot(rows - 7.0, columns - 10.0)
    clear = (first - second).abs() > 0.5  # the distance transform is approximate
    assert torch.equal(filled[clear], torch.where(first < second, 1.5, 4.0)[clear])
    assert set(filled.unique().tolist()) == {1.5, 4.0}
    everywhere = torch.rand(9, 12) + 0.5
    assert torch.equal(filled_depth(everywhere, everything, config), everywhere)
    # Pixels that nobody asks for stay as they are.
    some = rows % 2 == 0
    partly = filled_depth(depth, some, config)
    assert torch.equal(partly[some], filled[some])
    assert torch.equal(partly[~some], depth[~some])


def test_every_gap_among_many_measurements_takes_its_nearest_measurement() -> None:
    rng = np.random.default_rng(3)
    depth = torch.from_numpy(rng.uniform(1, 2, (40, 50)).astype(np.float32))
    depth[torch.from_numpy(rng.random((40, 50)) < 0.7)] = 0
    filled = filled_depth(depth, depth == 0, DensifyConfig())
    v, u = (depth > 0).nonzero(as_tuple=True)
    for row, column in (depth == 0).nonzero().tolist():
        distance = torch.hypot(v - float(row), u - float(column))
        # The transform's distances are within 3 %.
        near = distance <= 1.05 * distance.min()
        assert filled[row, column] in depth[v[near], u[near]]


def test_new_spheres_lie_on_the_grid_at_the_measured_points() -> None:
    config = DensifyConfig(stride=2, radius_scale=0.8, opacity=0.9)
    rng = np.random.default_rng(0)
    depth = torch.from_numpy(rng.uniform(0.5, 4, (16, 24)).astype(np.float32))
    rgb = torch.from_numpy(rng.uniform(-0.1, 1.1, (3, 16, 24)).astype(np.float32))
    mask = torch.ones(16, 24, dtype=torch.bool)
    mask[:, :4] = False
    new = spheres_from_pixels(mask, rgb, depth, CAMERA, T_CAMERA_WORLD, config)
    assert new.shape == (8, 8 * 10)
    camera_points = T_CAMERA_WORLD[:3, :3] @ new[:3].double().numpy() + T_CAMERA_WORLD[:3, 3:]
    u = CAMERA.fx * camera_points[0] / camera_points[2] + CAMERA.cx
    v = CAMERA.fy * camera_points[1] / camera_points[2] + CAMERA.cy
    columns, rows = np.floor(u).astype(int), np.floor(v).astype(int)
    assert np.abs(u - columns - 0.5).max() < 1e-5
    assert np.abs(v - rows - 0.5).max() < 1e-5
    assert (columns % 2 == 1).all()
    assert (rows % 2 == 1).all()
    assert columns.min() == 5
    z = depth.numpy()[rows, columns]
    assert camera_points[2] == pytest.approx(z, rel=1e-6)
    assert new[3].exp().numpy() == pytest.approx(1.6 * z / np.sqrt(20 * 21), rel=1e-6)
    assert torch.sigmoid(new[4]).numpy() == pytest.approx(0.9)
    assert torch.equal(new[5:], rgb[:, rows, columns].clamp(0, 1))


def test_a_flat_wall_is_explained_by_its_own_spheres() -> None:
    config = DensifyConfig()
    depth = torch.full((16, 24), 2.0)
    mask = torch.ones(16, 24, dtype=torch.bool)
    new = spheres_from_pixels(mask, torch.zeros(3, 16, 24), depth, CAMERA, np.eye(4), config)
    plan = RasterPlan()
    plan.project(new, new.shape[1], CAMERA, np.eye(4))
    image = torch.empty(plan.image_shape)
    plan.forward(image)
    assert not unexplained_pixels(image, depth, config)[1:-1, 1:-1].any()


def test_nothing_marked_makes_nothing() -> None:
    mask = torch.zeros(16, 24, dtype=torch.bool)
    depth = torch.ones(16, 24)
    new = spheres_from_pixels(
        mask, torch.zeros(3, 16, 24), depth, CAMERA, T_CAMERA_WORLD, DensifyConfig()
    )
    assert new.shape == (8, 0)
