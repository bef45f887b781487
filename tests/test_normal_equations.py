"""Tracking's normal equations: native against float64 autograd, and the pose that they find."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch

from gsslam import _native, geometry
from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.normal_equations import (
    ALL_PIXELS,
    PATCH,
    NormalEquations,
    NormalEquationSolver,
    PatchSampling,
    ResidualWeights,
    normal_equations_reference,
)
from gsslam.raster.plan import RasterPlan
from tests.raster.scenes import NASTY, nasty_spheres, random_pose, random_spheres

LOW_PASS = 0.3
# What the scenes' camera sees, in fewer pixels: the reference differentiates each of them.
CAMERA = Camera(29, 21, 26.0, 25.0, 14.3, 10.9)
# Depth is random: with a sigma this large, some residuals are small and some are outliers.
WEIGHTS = ResidualWeights(0.05, 0.3, 0.3, 0.05, 0.5)


def observation(rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (CAMERA.height, CAMERA.width)
    rgb = torch.from_numpy(rng.uniform(0, 1, (3, *shape)).astype(np.float32))
    depth = torch.from_numpy(rng.uniform(0.5, 4, shape).astype(np.float32))
    return rgb, depth


def native(
    spheres: torch.Tensor,
    T: torch.Tensor,
    rgb: torch.Tensor,
    depth: torch.Tensor,
    gain: float,
    bias: float,
    weights: ResidualWeights = WEIGHTS,
    device: str = "cpu",
    sampling: PatchSampling = ALL_PIXELS,
) -> NormalEquations:
    plan = RasterPlan(device=device)
    plan.project(spheres.to(device), spheres.shape[1], CAMERA, T.numpy(), LOW_PASS)
    solver = NormalEquationSolver(weights, device)
    rgb, depth = rgb.to(device), depth.to(device)
    equations = solver.form(plan, rgb, depth, gain, bias, sampling)
    if device == "cpu":
        compared = solver.compare(plan, rgb, depth, gain, bias, sampling)
        assert not compared.hessian.any()
        assert not compared.gradient.any()
        assert compared.cost == equations.cost
        assert compared.pixels == equations.pixels
        assert compared.colour_rms == equations.colour_rms
        assert compared.depth_rms == equations.depth_rms
    return equations


def assert_close(
    actual: NormalEquations,
    expected: NormalEquations,
    tolerance: float,
    least_pixels: int = 100,
) -> None:
    assert expected.pixels > least_pixels
    assert (actual.pixels, actual.depth_pixels) == (expected.pixels, expected.depth_pixels)
    # Unknowns have different units: each is measured by its own curvature.
    scale = np.sqrt(np.diag(expected.hessian))
    difference = (actual.hessian - expected.hessian) / np.outer(scale, scale)
    assert np.abs(difference).max() < tolerance
    gradient = expected.gradient / scale
    error = np.linalg.norm(actual.gradient / scale - gradient)
    assert error < tolerance * np.sqrt(2 * expected.cost)
    assert actual.cost == pytest.approx(expected.cost, rel=tolerance)
    assert actual.colour_rms == pytest.approx(expected.colour_rms, rel=tolerance)
    assert actual.depth_rms == pytest.approx(expected.depth_rms, rel=tolerance)


@dataclass(frozen=True)
class Case:
    spheres: torch.Tensor
    T_camera_world: torch.Tensor
    rgb: torch.Tensor
    depth: torch.Tensor
    exposure: tuple[float, float]
    expected: NormalEquations

    def native(self, device: str) -> NormalEquations:
        return native(
            self.spheres, self.T_camera_world, self.rgb, self.depth, *self.exposure, device=device
        )


@cache  # for all instruction sets
def random_case(sigma: float, exposure: tuple[float, float]) -> Case:
    rng = np.random.default_rng(int(sigma))
    spheres, T = random_spheres(rng, 200, sigma), random_pose(rng)
    rgb, depth = observation(rng)
    depth[::3, ::2] = 0
    depth[1, 5:25] = torch.tensor([float("nan"), float("inf"), -1.0, -float("inf"), 0.0]).repeat(4)
    clean = depth.where(depth < 1e30, 0.0)
    expected = normal_equations_reference(
        spheres, T, CAMERA, LOW_PASS, rgb, clean, *exposure, WEIGHTS
    )
    return Case(spheres, T, rgb, depth, exposure, expected)


@cache
def nasty_case(name: str) -> Case:
    rng = np.random.default_rng(3)
    ordinary, T = random_spheres(rng, 60, 8.0), torch.eye(4, dtype=torch.float64)
    rgb, depth = observation(rng)
    spheres = torch.cat([ordinary[:, :30], nasty_spheres(name), ordinary[:, 30:]], dim=1)
    # Automatic differentiation makes NaN of 0 x inf, so it sees only what is drawn.
    plan = RasterPlan()
    drawn = [
        plan.project(spheres[:, [i]].contiguous(), 1, CAMERA, T.numpy(), LOW_PASS) > 0
        for i in range(spheres.shape[1])
    ]
    expected = normal_equations_reference(
        spheres[:, drawn], T, CAMERA, LOW_PASS, rgb, depth, 1.0, 0.0, WEIGHTS
    )
    return Case(spheres, T, rgb, depth, (1.0, 0.0), expected)


@pytest.mark.parametrize("exposure", [(1.0, 0.0), (1.3, -0.1)])
@pytest.mark.parametrize("sigma", [2.0, 4.0, 10.0])
def test_native_is_the_reference(kernels: str, sigma: float, exposure: tuple[float, float]) -> None:
    case = random_case(sigma, exposure)
    # The transmittance and its derivative are summed in another order on CUDA.
    assert_close(case.native(kernels), case.expected, 5e-6 if kernels == "cpu" else 2e-5)


@pytest.mark.parametrize("stride", [2, 3, 4, 7])
def test_sampled_patches_are_the_reference(isa: str, stride: int) -> None:
    rng = np.random.default_rng(stride)
    spheres, T = random_spheres(rng, 200, 6.0), random_pose(rng)
    rgb, depth = observation(rng)
    sampling = PatchSampling(stride)
    actual = native(spheres, T, rgb, depth, 1.1, 0.02, sampling=sampling)
    expected = normal_equations_reference(
        spheres, T, CAMERA, LOW_PASS, rgb, depth, 1.1, 0.02, WEIGHTS, sampling
    )
    assert_close(actual, expected, 5e-6, least_pixels=40)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 6, 8, 9, 16])
def test_patches_are_spread_evenly(stride: int) -> None:
    sampling = PatchSampling(stride)
    side = PATCH * stride
    mask = sampling.mask(side, side)
    assert int(mask.sum()) * stride == side * side
    patches = mask[::PATCH, ::PATCH]
    assert torch.equal(mask, patches.repeat_interleave(PATCH, 0).repeat_interleave(PATCH, 1))
    # Every row and every column of patches has one, and no two touch by a side.
    assert (patches.sum(dim=0) == 1).all()
    assert (patches.sum(dim=1) == 1).all()


def test_the_densest_sampling_below_the_limit_is_taken() -> None:
    camera = Camera(320, 240, 260.0, 260.0, 160.0, 120.0)
    strides = {limit: PatchSampling.at_most(limit, camera).stride for limit in (0, 80_000, 9600)}
    assert strides == {0: 1, 80_000: 1, 9600: 8}
    assert PatchSampling.at_most(25_000, camera).stride == 4


@pytest.mark.parametrize("name", NASTY)
def test_nasty_spheres_leave_the_equations_finite_and_right(kernels: str, name: str) -> None:
    case = nasty_case(name)
    assert_close(case.native(kernels), case.expected, 1e-4)


def test_gradient_is_the_slope_of_the_cost() -> None:
    rng = np.random.default_rng(5)
    spheres, T = random_spheres(rng, 100, 6.0), random_pose(rng)
    rgb, depth = observation(rng)
    weights = ResidualWeights(0.05, 0.3, 0.3, 0.05, 0.0)  # the same pixels at every pose
    equations = normal_equations_reference(
        spheres, T, CAMERA, LOW_PASS, rgb, depth, 1.1, 0.02, weights
    )
    direction, step = rng.normal(size=8), 1e-7

    def cost(size: float) -> float:
        xi = size * direction
        moved = torch.from_numpy(geometry.exp_se3(xi[:6]) @ T.numpy())
        exposure = (1.1 + xi[6], 0.02 + xi[7])
        return normal_equations_reference(
            spheres, moved, CAMERA, LOW_PASS, rgb, depth, *exposure, weights
        ).cost

    slope = (cost(step) - cost(-step)) / (2 * step)
    assert equations.gradient @ direction == pytest.approx(slope, rel=1e-4)


def test_nothing_visible_gives_nothing(kernels: str) -> None:
    rng = np.random.default_rng(6)
    rgb, depth = observation(rng)
    spheres, T = random_spheres(rng, 10), torch.eye(4, dtype=torch.float64)
    behind = spheres.clone()
    behind[2] *= -1
    for nothing in (behind, spheres[:, :0].contiguous()):
        equations = native(nothing, T, rgb, depth, 1.0, 0.0, device=kernels)
        assert not equations.hessian.any()
        assert not equations.gradient.any()
        assert equations.pixels == equations.cost == 0
        assert equations.mean_cost() == float("inf")


def test_without_any_depth_colour_alone_counts(device: str) -> None:
    rng = np.random.default_rng(7)
    spheres, T = random_spheres(rng, 400, 4.0), random_pose(rng)
    rgb, depth = observation(rng)
    blind = native(spheres, T, rgb, torch.zeros_like(depth), 1.0, 0.0, device=device)
    assert blind.depth_pixels == blind.depth_rms == 0
    colour_only = ResidualWeights(0.05, 0.0, 0.01, 0.003, 0.5)
    unweighted = native(spheres, T, rgb, depth, 1.0, 0.0, colour_only, device)
    assert np.array_equal(blind.hessian, unweighted.hessian)
    assert np.array_equal(blind.gradient, unweighted.gradient)


def test_bytes_do_not_depend_on_the_number_of_threads(isa: str) -> None:
    rng = np.random.default_rng(8)
    spheres, T = random_spheres(rng, 3000, 2.0), random_pose(rng)
    rgb, depth = observation(rng)
    results = set()
    for threads in (1, 2, 3, 2):
        _native.set_thread_count(threads)
        for stride in (1, 3):
            equations = native(spheres, T, rgb, depth, 1.0, 0.0, sampling=PatchSampling(stride))
            results.add((stride, equations.hessian.tobytes(), equations.gradient.tobytes()))
    assert len(results) == 2


def test_gauss_newton_finds_the_pose_and_the_exposure(kernels: str) -> None:
    rng = np.random.default_rng(9)
    spheres = random_spheres(rng, 800, 4.0).to(kernels)
    truth = random_pose(rng).numpy()
    plan = RasterPlan(device=kernels)
    plan.project(spheres, 800, CAMERA, truth, LOW_PASS)
    image = torch.empty(plan.image_shape, device=kernels)
    plan.forward(image)
    rgb = (1.2 * image[:3] - 0.05).contiguous()
    depth = (image[3] / image[4].clamp(min=1e-6)).contiguous()
    solver = NormalEquationSolver(ResidualWeights(0.05, 0.05, 0.01, 0.003, 0.7), kernels)
    pose = geometry.exp_se3(np.array([4e-3, -3e-3, 5e-3, 3e-3, 4e-3, -5e-3])) @ truth
    gain, bias = 1.0, 0.0
    for _ in range(12):
        plan.project(spheres, 800, CAMERA, pose, LOW_PASS)
        equations = solver.form(plan, rgb, depth, gain, bias)
        step = np.linalg.solve(equations.hessian, -equations.gradient)
        pose = geometry.exp_se3(step[:6]) @ pose
        gain, bias = gain + step[6], bias + step[7]
    error = geometry.log_se3(pose @ geometry.inverse(truth))
    assert np.linalg.norm(error[:3]) < 1e-5  # metres: a hundredth of a millimetre
    assert np.linalg.norm(error[3:]) < 1e-5
    assert (gain, bias) == pytest.approx((1.2, -0.05), abs=1e-4)


def test_unusable_arguments_are_named() -> None:
    rng = np.random.default_rng(1)
    spheres, T = random_spheres(rng, 10), torch.eye(4, dtype=torch.float64)
    rgb, depth = observation(rng)
    with pytest.raises(NativeError, match="rgb must be"):
        native(spheres, T, rgb[:2], depth, 1.0, 0.0)
    with pytest.raises(NativeError, match="depth must be"):
        native(spheres, T, rgb, depth.double(), 1.0, 0.0)
    with pytest.raises(NativeError, match="project must be called first"):
        NormalEquationSolver(WEIGHTS).form(RasterPlan(), rgb, depth, 1.0, 0.0)
