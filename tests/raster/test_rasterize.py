"""The native rasteriser against the float64 reference, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gsslam import ConfigError, NativeError, _native, rasterize
from gsslam.raster import constants
from gsslam.raster.interface import Spheres
from gsslam.raster.native import rasterize_native
from gsslam.raster.plan import RasterPlan
from gsslam.raster.reference import (
    keep_statistics,
    rasterize_reference,
    statistics_reference,
)
from tests.raster.scenes import CAMERA, NASTY, nasty_spheres, random_pose, random_spheres

LOW_PASS = constants.DEFAULT_LOW_PASS
TOLERANCE = 3e-6


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the relative L2 error; where the truth is zero, the size of the result."""
    assert torch.isfinite(actual).all()
    norm = float(expected.detach().norm())
    return float((actual.detach().double() - expected.detach()).norm()) / (norm or 1.0)


def native_on(device: str):
    """Return the native rasteriser on a device, from and to tensors on the CPU."""

    def render(spheres, T, camera, low_pass):
        return rasterize_native(spheres.to(device), T, camera, low_pass).cpu()

    return render


def gradients(render, spheres: torch.Tensor, T: torch.Tensor, upstream: torch.Tensor):
    spheres, T = spheres.clone().requires_grad_(), T.clone().requires_grad_()
    planes = render(spheres, T, CAMERA, LOW_PASS)
    (planes.double() * upstream).sum().backward()
    return planes, spheres.grad, T.grad


@pytest.mark.parametrize("sigma", [0.4, 2.0, 12.0])
@pytest.mark.parametrize("num_features", [0, 3, 16])
def test_matches_reference(kernels, sigma, num_features):
    rng = np.random.default_rng([int(10 * sigma), num_features])
    spheres, T = random_spheres(rng, 300, sigma, num_features), random_pose(rng)
    upstream = torch.from_numpy(rng.normal(size=(5 + num_features, CAMERA.height, CAMERA.width)))
    planes, grad, grad_T = gradients(native_on(kernels), spheres, T, upstream)
    expected, expected_grad, expected_grad_T = gradients(rasterize_reference, spheres, T, upstream)
    assert error(planes, expected) < TOLERANCE
    assert expected_grad.norm() > 0
    for row in range(len(grad)):
        assert error(grad[row], expected_grad[row].double()) < 10 * TOLERANCE, f"row {row}"
    assert error(grad_T, expected_grad_T) < 10 * TOLERANCE


@pytest.mark.parametrize("name", NASTY)
def test_nasty_spheres_match_reference_and_leave_neighbours_alone(kernels, name):
    rng = np.random.default_rng(7)
    ordinary = random_spheres(rng, 60)
    spheres = torch.cat([ordinary[:, :30], nasty_spheres(name), ordinary[:, 30:]], dim=1)
    T = torch.eye(4, dtype=torch.float64)
    upstream = torch.from_numpy(rng.normal(size=(5, CAMERA.height, CAMERA.width)))
    planes, grad, grad_T = gradients(native_on(kernels), spheres, T, upstream)
    expected, expected_grad, expected_grad_T = _reference_without_invalid(
        spheres, T, upstream, kernels
    )
    assert error(planes, expected) < 1e-5
    assert error(grad, expected_grad.double()) < 1e-4
    assert error(grad_T, expected_grad_T) < 1e-4


def _reference_without_invalid(spheres, T, upstream, device):
    """Differentiate only what is drawn: automatic differentiation makes NaN of 0 x inf."""
    plan = RasterPlan(device=device)
    columns = spheres.to(device).unbind(1)
    drawn = torch.tensor(
        [plan.project(x[:, None].contiguous(), 1, CAMERA, T.numpy(), LOW_PASS) > 0 for x in columns]
    )
    planes, some_grad, grad_T = gradients(rasterize_reference, spheres[:, drawn], T, upstream)
    grad = torch.zeros_like(spheres)
    grad[:, drawn] = some_grad
    return planes, grad, grad_T


def test_reference_leaves_out_exactly_what_the_kernels_leave_out(kernels):
    for name in NASTY:
        spheres, T = nasty_spheres(name), torch.eye(4, dtype=torch.float64)
        expected = rasterize_reference(spheres, T, CAMERA, LOW_PASS)
        actual = native_on(kernels)(spheres, T, CAMERA, LOW_PASS)
        assert error(actual, expected) < 1e-5, name


@pytest.mark.parametrize("count", [0, 1])
def test_no_spheres_give_black_and_no_gradient(kernels, count):
    spheres = torch.zeros(8, count)
    spheres[2] = -1.0  # behind
    upstream = torch.ones(5, CAMERA.height, CAMERA.width)
    planes, grad, grad_T = gradients(native_on(kernels), spheres, torch.eye(4), upstream)
    assert not planes.any() and not grad.any() and not grad_T.any()


def test_finite_differences_agree_with_the_reference_gradient():
    rng = np.random.default_rng(3)
    spheres, T = random_spheres(rng, 12).double(), random_pose(rng)
    upstream = torch.from_numpy(rng.normal(size=(5, CAMERA.height, CAMERA.width)))
    _, grad, _ = gradients(rasterize_reference, spheres, T, upstream)
    direction = torch.from_numpy(rng.normal(size=spheres.shape))
    # Steps so small that hardly any pixel crosses a cut-off.
    step = 1e-7 * direction

    def value(x):
        return float((rasterize_reference(x, T, CAMERA, LOW_PASS) * upstream).sum())

    numeric = (value(spheres + step) - value(spheres - step)) / 2e-7
    assert numeric == pytest.approx(float((grad * direction).sum()), rel=1e-5)


def test_statistics_match_reference(kernels):
    rng = np.random.default_rng(11)
    spheres, T = random_spheres(rng, 200, num_features=2), random_pose(rng)
    plan = RasterPlan(2, kernels)
    on_device = spheres.to(kernels)
    plan.project(on_device, 200, CAMERA, T.numpy())
    image = torch.empty(plan.image_shape, device=kernels)
    plan.forward(image)
    pixel_error = torch.rand(plan.image_shape[1:])
    statistics = torch.zeros(4, 200, device=kernels)
    grad_image, grad = torch.randn(plan.image_shape).to(kernels), torch.zeros_like(on_device)
    plan.backward(image, grad_image, grad, pixel_error.to(kernels), statistics)
    statistics = statistics.cpu()
    expected = statistics_reference(spheres, T, CAMERA, LOW_PASS, pixel_error)
    for row in range(constants.STATISTICS):
        assert error(statistics[row], expected[row]) < TOLERANCE
    assert expected[constants.STAT_PIXELS].max() > 50


def test_statistics_of_several_views_fade_as_in_the_reference(kernels):
    rng = np.random.default_rng(12)
    spheres = random_spheres(rng, 200)
    plan, on_device = RasterPlan(0, kernels), spheres.to(kernels)
    statistics, grad = torch.zeros(4, 200, device=kernels), torch.zeros_like(on_device)
    expected = torch.zeros(4, 200, dtype=torch.float64)
    views = torch.zeros(200)
    for _ in range(5):
        T, pixel_error = random_pose(rng), torch.rand(CAMERA.height, CAMERA.width)
        plan.project(on_device, 200, CAMERA, T.numpy())
        image = torch.empty(plan.image_shape, device=kernels)
        plan.forward(image)
        plan.backward(image, image, grad, pixel_error.to(kernels), statistics, 0.75)
        seen = statistics_reference(spheres, T, CAMERA, LOW_PASS, pixel_error)
        views += seen[constants.STAT_PIXELS] > 0
        expected = keep_statistics(expected, seen, 0.75)
    assert ((views > 0) & (views < 5)).any()
    for row in range(constants.STATISTICS):
        assert error(statistics.cpu()[row], expected[row]) < TOLERANCE


def test_bytes_do_not_depend_on_threads_or_repetition():
    rng = np.random.default_rng(5)
    spheres, T = random_spheres(rng, 5000, 1.5), random_pose(rng)
    upstream = torch.from_numpy(rng.normal(size=(5, CAMERA.height, CAMERA.width))).float()
    results = set()
    for threads in (1, 2, 3, 2):
        _native.set_thread_count(threads)
        planes, grad, grad_T = gradients(rasterize_native, spheres, T, upstream)
        results.add(b"".join(t.detach().numpy().tobytes() for t in (planes, grad, grad_T)))
    assert len(results) == 1


def test_order_of_the_spheres_does_not_change_the_image(kernels):
    rng = np.random.default_rng(6)
    spheres, T = random_spheres(rng, 500), random_pose(rng)
    shuffled = spheres[:, rng.permutation(500)].contiguous()
    render = native_on(kernels)
    first = render(spheres, T, CAMERA, LOW_PASS)
    assert torch.equal(first, render(shuffled, T, CAMERA, LOW_PASS))


def test_constants_are_those_of_the_native_module():
    names = ("near_plane", "max_sigma", "min_alpha", "max_alpha", "min_transmittance")
    for name in (*names, "max_features"):
        ours = getattr(constants, name.upper())
        assert _native.constants[name] == pytest.approx(ours, rel=1e-7)


def test_public_rasterize_renders_expected_depth_and_differentiates_features():
    rng = np.random.default_rng(8)
    matrix = random_spheres(rng, 100, 3.0, num_features=4)
    spheres = Spheres(matrix[:3].T, matrix[3], matrix[4], matrix[5:8].T, matrix[8:].T)
    T = random_pose(rng)
    native = rasterize(spheres, CAMERA, T)
    reference = rasterize(spheres, CAMERA, T, backend="reference")
    for name in ("colour", "depth", "silhouette", "feature"):
        assert error(getattr(native, name), getattr(reference, name)) < 1e-5
    seen = native.silhouette > 0.5
    assert 0.4 < float(native.depth[seen].min()) < float(native.depth[seen].max()) < 4.5
    assert native.colour.shape == (CAMERA.height, CAMERA.width, 3)


def test_unusable_arguments_are_named():
    good = torch.zeros(8, 4)
    with pytest.raises(NativeError, match="parameters must be"):
        RasterPlan().project(good.double(), 4, CAMERA, np.eye(4))
    with pytest.raises(NativeError, match=r"count must be .* got 5"):
        RasterPlan().project(good, 5, CAMERA, np.eye(4))
    with pytest.raises(NativeError, match="finite"):
        RasterPlan().project(good, 4, CAMERA, np.full((4, 4), np.nan))
    with pytest.raises(NativeError, match="project must be called first"):
        RasterPlan().forward(torch.zeros(5, 4, 4))
    with pytest.raises(NativeError, match="num_features"):
        RasterPlan(65)
    with pytest.raises(ConfigError, match="log_radius"):
        spheres = Spheres(torch.zeros(2, 3), torch.zeros(3), torch.zeros(2), torch.zeros(2, 3))
        rasterize(spheres, CAMERA, torch.eye(4))
