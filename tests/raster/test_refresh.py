"""Projection from a nearby pose with the order and the lists of the pose before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gsslam import _native, geometry
from gsslam.raster.plan import RasterPlan
from gsslam.raster.reference import rasterize_reference
from tests.raster.scenes import CAMERA, NASTY, nasty_spheres, random_pose, random_spheres

LOW_PASS, MARGIN = 0.3, 2.0


def listed(spheres: torch.Tensor, T: np.ndarray, margin: float = MARGIN) -> RasterPlan:
    plan = RasterPlan()
    plan.project(spheres, spheres.shape[1], CAMERA, T, LOW_PASS, list_margin=margin)
    return plan


def image_of(plan: RasterPlan) -> torch.Tensor:
    image = torch.empty(plan.image_shape)
    plan.forward(image)
    return image


def gradient_of(plan: RasterPlan, spheres: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    image, gradient = image_of(plan), torch.zeros_like(spheres)
    upstream = torch.from_numpy(np.random.default_rng(0).normal(size=image.shape)).float()
    pose = plan.backward(image, upstream, gradient)
    return gradient, pose


def small_motion(seed: int, size: float) -> np.ndarray:
    return geometry.exp_se3(size * np.random.default_rng(seed).normal(size=6))


@pytest.mark.parametrize("sigma", [0.4, 2.0, 12.0])
def test_refresh_is_the_reference_in_the_order_of_the_lists(isa: str, sigma: float) -> None:
    rng = np.random.default_rng(1)
    spheres, T = random_spheres(rng, 400, sigma), random_pose(rng).numpy()
    plan, moved = listed(spheres, T), small_motion(2, 0.004) @ T
    assert plan.refresh(CAMERA, moved, LOW_PASS)
    expected = rasterize_reference(
        spheres, torch.from_numpy(moved), CAMERA, LOW_PASS, T_order=torch.from_numpy(T)
    )
    assert float((image_of(plan) - expected).norm() / expected.norm()) < 3e-6
    if sigma > 1:  # smaller spheres hardly overlap; of these, the order does matter
        reordered = rasterize_reference(spheres, torch.from_numpy(moved), CAMERA, LOW_PASS)
        assert float((reordered - expected).norm() / expected.norm()) > 1e-5


def test_refresh_is_projection_where_the_order_stays(isa: str) -> None:
    rng = np.random.default_rng(3)
    spheres, T = random_spheres(rng, 2000, 2.0), random_pose(rng).numpy()
    plan = listed(spheres, T)
    for step in range(5):  # a turn about the optical axis changes no depth
        roll = geometry.exp_se3(np.array([1e-3, -2e-3, 0, 0, 0, 0.003 * step])) @ T
        assert plan.refresh(CAMERA, roll, LOW_PASS)
        fresh = listed(spheres, roll, margin=0.0)
        assert torch.allclose(image_of(plan), image_of(fresh), rtol=0, atol=2e-6)
        ours, our_pose = gradient_of(plan, spheres)
        theirs, their_pose = gradient_of(fresh, spheres)
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-5
        assert np.abs(our_pose - their_pose).max() < 1e-5 * np.abs(their_pose).max()


def test_a_margin_changes_no_image(isa: str) -> None:
    rng = np.random.default_rng(4)
    spheres, T = random_spheres(rng, 2000, 2.0), random_pose(rng).numpy()
    assert torch.equal(image_of(listed(spheres, T)), image_of(listed(spheres, T, margin=0.0)))


@pytest.mark.parametrize("name", NASTY)
def test_nasty_spheres_stay_apart(isa: str, name: str) -> None:
    rng = np.random.default_rng(5)
    ordinary = random_spheres(rng, 100, 4.0)
    spheres = torch.cat([ordinary[:, :50], nasty_spheres(name), ordinary[:, 50:]], dim=1)
    roll = geometry.exp_se3(np.array([0, 0, 0, 0, 0, 0.002]))
    plan = listed(spheres, np.eye(4))
    assert plan.refresh(CAMERA, roll, LOW_PASS)
    assert torch.isfinite(gradient_of(plan, spheres)[0][:, :50]).all()
    fresh = image_of(listed(spheres, roll, margin=0.0))
    assert torch.allclose(image_of(plan), fresh, rtol=0, atol=1e-5)


def test_what_goes_behind_the_camera_is_drawn_no_more(isa: str) -> None:
    near = random_spheres(np.random.default_rng(6), 1)
    near[:, 0] = torch.tensor([0.0, 0.0, 0.02, -6.0, 2.0, 1.0, 1.0, 1.0])
    plan = listed(near, np.eye(4))
    assert image_of(plan).any()
    back = geometry.exp_se3(np.array([0, 0, -0.015, 0, 0, 0]))
    assert plan.refresh(CAMERA, back, LOW_PASS)
    assert not image_of(plan).any()
    assert not gradient_of(plan, near)[0].any()


@pytest.mark.parametrize(("shift", "holds"), [(1.9, True), (2.1, False)])
def test_lists_hold_while_the_image_moves_by_less_than_the_margin(
    isa: str, shift: float, holds: bool
) -> None:
    sphere = torch.tensor([[0.0, 0.0, 1.0, -3.0, 2.0, 0.5, 0.5, 0.5]]).T.contiguous()
    plan = listed(sphere, np.eye(4))
    moved = geometry.exp_se3(np.array([shift / CAMERA.fx, 0, 0, 0, 0, 0]))
    assert plan.refresh(CAMERA, moved, LOW_PASS) is holds
    # What did not hold is of no pose, and stays so until lists are made.
    assert plan.refresh(CAMERA, np.eye(4), LOW_PASS) is holds


def test_lists_do_not_hold_when_a_sphere_comes_into_view(isa: str) -> None:
    sphere = torch.tensor([[-0.8, 0.0, 1.0, -4.0, 2.0, 0.5, 0.5, 0.5]]).T.contiguous()
    plan = listed(sphere, np.eye(4))
    assert not image_of(plan).any()
    assert plan.refresh(CAMERA, geometry.exp_se3(np.array([0.1, 0, 0, 0, 0, 0])), LOW_PASS)
    assert not plan.refresh(CAMERA, geometry.exp_se3(np.array([0.5, 0, 0, 0, 0, 0])), LOW_PASS)


def test_lists_hold_for_their_camera_and_with_a_margin_only(isa: str) -> None:
    spheres = random_spheres(np.random.default_rng(7), 50)
    assert not RasterPlan().refresh(CAMERA, np.eye(4), LOW_PASS)
    assert not listed(spheres, np.eye(4), margin=0.0).refresh(CAMERA, np.eye(4), LOW_PASS)
    plan = listed(spheres, np.eye(4))
    assert not plan.refresh(replace(CAMERA, fx=CAMERA.fx + 1), np.eye(4), LOW_PASS)
    plan.forget()
    assert not plan.refresh(CAMERA, np.eye(4), LOW_PASS)


def test_bytes_do_not_depend_on_the_number_of_threads(isa: str) -> None:
    rng = np.random.default_rng(8)
    spheres, T = random_spheres(rng, 20_000, 1.0), random_pose(rng).numpy()
    moved, results = small_motion(9, 0.003) @ T, set()
    for threads in (1, 2, 3, 2):
        _native.set_thread_count(threads)
        plan = listed(spheres, T)
        assert plan.refresh(CAMERA, moved, LOW_PASS)
        gradient, pose = gradient_of(plan, spheres)
        results.add(image_of(plan).numpy().tobytes() + gradient.numpy().tobytes() + pose.tobytes())
    assert len(results) == 1
