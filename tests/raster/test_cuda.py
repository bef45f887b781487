"""What only the CUDA rasteriser can get wrong: long lists, overflow, order of atomics, streams."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.raster.native import rasterize_native
from gsslam.raster.plan import RasterPlan
from tests.conftest import usable_device
from tests.raster.scenes import CAMERA, random_pose, random_spheres
from tests.raster.test_rasterize import LOW_PASS, error, gradients

pytestmark = pytest.mark.gpu
VGA = Camera(640, 480, 525.0, 520.0, 320.3, 239.6)


@pytest.fixture(autouse=True)
def cuda() -> None:
    usable_device("cuda")


def room(n: int, seed: int = 0, num_features: int = 0) -> torch.Tensor:
    """Return (8 + D, n) spheres of about a pixel and a half that cover the image of VGA."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(0.6, 4, n)
    u, v = rng.uniform(-9, VGA.width + 9, n), rng.uniform(-9, VGA.height + 9, n)
    rows = [
        (u - VGA.cx) / VGA.fx * z,
        (v - VGA.cy) / VGA.fy * z,
        z,
        np.log(1.5 * z / VGA.fx * np.exp(0.5 * rng.normal(size=n))),
        2 * rng.normal(size=n),
        *rng.uniform(0, 1, (3 + num_features, n)),
    ]
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def run(spheres: torch.Tensor, device: str, camera: Camera = VGA) -> dict[str, torch.Tensor]:
    """Render and differentiate on a device."""
    features = spheres.shape[0] - 8
    plan, spheres = RasterPlan(features, device), spheres.to(device)
    plan.project(spheres, spheres.shape[1], camera, np.eye(4), LOW_PASS)
    image = torch.full(plan.image_shape, float("nan"), device=device)
    plan.forward(image)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.randn(plan.image_shape, generator=generator).to(device)
    pixel_error = torch.rand(plan.image_shape[1:], generator=generator).to(device)
    grad = torch.zeros_like(spheres)
    statistics = torch.zeros(4, spheres.shape[1], device=device)
    pose = plan.backward(image, upstream, grad, pixel_error, statistics)
    plain = torch.zeros_like(spheres)
    plan.backward(image, upstream, plain)
    results = {"image": image, "grad": grad, "statistics": statistics, "plain": plain}
    return {k: v.cpu() for k, v in results.items()} | {"pose": torch.from_numpy(pose)}


@pytest.mark.parametrize(("n", "features"), [(200_000, 0), (30_000, 16), (20_000, 33)])
def test_agrees_with_the_cpu_at_full_size(n: int, features: int) -> None:
    spheres = room(n, num_features=features)
    ours, theirs = run(spheres, "cuda"), run(spheres, "cpu")
    # A pixel where a cut-off falls the other way by rounding differs by up to 1/255 of a sphere.
    for name, tolerance in [("image", 1e-4), ("pose", 1e-3), ("statistics", 1e-3)]:
        assert error(ours[name], theirs[name].double()) < tolerance, name
    for row in range(len(spheres)):
        assert error(ours["grad"][row], theirs["grad"][row].double()) < 2e-3, f"row {row}"
    # The kernel without statistics adds up in another way.
    assert error(ours["plain"], ours["grad"].double()) < 3e-6


def test_lists_longer_than_shared_memory_are_sorted() -> None:
    rng = np.random.default_rng(2)
    spheres = random_spheres(rng, 30_000, 3.0)
    spheres[4] = -4.0  # faint, so that light gets to the last
    T = torch.eye(4, dtype=torch.float64)
    upstream = torch.from_numpy(rng.normal(size=(5, CAMERA.height, CAMERA.width)))
    on_cpu = gradients(rasterize_native, spheres, T, upstream)
    shuffle = torch.from_numpy(rng.permutation(spheres.shape[1]))

    def render(x, T, camera, low_pass):
        return rasterize_native(x.to("cuda"), T, camera, low_pass).cpu()

    planes, grad, grad_T = gradients(render, spheres, T, upstream)
    assert error(planes, on_cpu[0].double()) < 1e-5
    assert error(grad, on_cpu[1].double()) < 1e-4
    assert error(grad_T, on_cpu[2].double()) < 1e-4
    assert torch.equal(planes, render(spheres[:, shuffle].contiguous(), T, CAMERA, LOW_PASS))


@pytest.mark.parametrize("logit", [2.0, -4.0])
def test_long_lists_are_cut_and_give_the_same(logit: float) -> None:
    """One tile has nearly everything; opaque, the light stops within the first segment."""
    rng = np.random.default_rng(3)
    spheres = random_spheres(rng, 20_000, 1.0)
    z = spheres[2].clone()
    spheres[0] = ((24 + 8 * spheres[0] / spheres[0].abs().max()) - CAMERA.cx) / CAMERA.fx * z
    spheres[1] = ((16 + 8 * spheres[1] / spheres[1].abs().max()) - CAMERA.cy) / CAMERA.fy * z
    spheres[4] = logit + torch.from_numpy(rng.normal(size=20_000))
    ours, theirs = run(spheres, "cuda", CAMERA), run(spheres, "cpu", CAMERA)
    assert error(ours["image"], theirs["image"].double()) < 1e-5
    for name in ("grad", "plain"):
        for row in range(8):
            assert error(ours[name][row], theirs["grad"][row].double()) < 1e-3, (name, row)
    assert error(ours["statistics"], theirs["statistics"].double()) < 1e-3
    for _ in range(50):
        again = run(spheres, "cuda", CAMERA)
        assert all(torch.equal(ours[name], again[name]) for name in ours)
    # Also where the gradient comes without an image before it.
    plan, x = RasterPlan(0, "cuda"), spheres.cuda()
    plan.project(x, x.shape[1], CAMERA, np.eye(4), LOW_PASS)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.randn(plan.image_shape, generator=generator).cuda()
    grad = torch.zeros_like(x)
    plan.backward(ours["image"].cuda(), upstream, grad)
    assert torch.equal(grad.cpu(), ours["plain"])


def test_images_of_more_tiles_than_shared_memory_counts() -> None:
    spheres, wide = room(20_000), Camera(4112, 400, 2000.0, 500.0, 2056.0, 200.0)
    ours, theirs = run(spheres, "cuda", wide), run(spheres, "cpu", wide)
    assert error(ours["image"], theirs["image"].double()) < 1e-4
    assert error(ours["grad"], theirs["grad"].double()) < 2e-3


def test_spheres_that_fill_the_image_make_room_for_their_lists() -> None:
    spheres = room(3000)
    spheres[3] += 4.5  # 90 times larger: every list overflows its first size
    spheres[4] -= 4.0
    ours, theirs = run(spheres, "cuda"), run(spheres, "cpu")
    assert error(ours["image"], theirs["image"].double()) < 1e-4
    assert error(ours["grad"], theirs["grad"].double()) < 2e-3


def test_a_thousand_repetitions_give_the_same_bytes() -> None:
    spheres = room(20_000).cuda()
    plan = RasterPlan(0, "cuda")
    upstream = torch.randn(5, VGA.height, VGA.width, device="cuda")
    first = None
    for _ in range(1000):
        plan.project(spheres, spheres.shape[1], VGA, np.eye(4), LOW_PASS)
        image = torch.empty(plan.image_shape, device="cuda")
        plan.forward(image)
        grad = torch.zeros_like(spheres)
        pose = plan.backward(image, upstream, grad)
        if first is None:
            first = image, grad, pose
        assert torch.equal(image, first[0])
        assert torch.equal(grad, first[1])
        assert np.array_equal(pose, first[2])


def test_one_plan_serves_changing_maps_and_cameras() -> None:
    plan = RasterPlan(0, "cuda")
    for n, camera in [(500, CAMERA), (5000, VGA), (0, CAMERA), (50, Camera(1, 1, 9, 9, 0.5, 0.5))]:
        spheres = random_spheres(np.random.default_rng(n), n)
        images = []
        for p, device in [(plan, "cuda"), (RasterPlan(), "cpu")]:
            p.project(spheres.to(device), n, camera, np.eye(4), LOW_PASS)
            images.append(torch.full(p.image_shape, float("nan"), device=device))
            p.forward(images[-1])
        assert error(images[0].cpu(), images[1].double()) < 1e-5


def test_works_on_the_current_stream() -> None:
    rng = np.random.default_rng(4)
    spheres, T = random_spheres(rng, 1000), random_pose(rng)
    expected = rasterize_native(spheres.cuda(), T, CAMERA, LOW_PASS)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        later = spheres.to("cuda", non_blocking=True)
        assert torch.equal(rasterize_native(later, T, CAMERA, LOW_PASS), expected)


def test_projecting_without_waiting_draws_the_same() -> None:
    spheres = room(5000).cuda()
    plan = RasterPlan(0, "cuda")
    images = []
    for wait in (True, False):
        plan.project(spheres, 5000, VGA, np.eye(4), LOW_PASS, wait=wait)
        images.append(torch.zeros(plan.image_shape, device="cuda"))
        plan.forward(images[-1])
    assert torch.equal(*images)


def test_unusable_arguments_are_named() -> None:
    with pytest.raises(NativeError, match="on cuda:0"):
        RasterPlan(0, "cuda").project(torch.zeros(8, 4), 4, CAMERA, np.eye(4))
    with pytest.raises(NativeError, match="at most 16777216 spheres"):
        huge = torch.empty(8, 2**24 + 1, device="cuda")
        RasterPlan(0, "cuda").project(huge, 2**24 + 1, CAMERA, np.eye(4))
    with pytest.raises(NativeError, match="far too large"):  # 8e9 cells
        everywhere = room(900_000).cuda()
        everywhere[3] = 5.0
        RasterPlan(0, "cuda").project(everywhere, 900_000, VGA, np.eye(4))
    with pytest.raises(NativeError, match="no GPU 99"):
        RasterPlan(0, "cuda:99")


@pytest.mark.parametrize("features", [0, 3])
def test_sanitize_rasteriser(features: int) -> None:
    """Small, for compute-sanitizer: short and long lists, statistics, features, room made."""
    spheres = random_spheres(np.random.default_rng(9), 6000, 2.0, features)
    spheres[3, :20] += 4
    spheres[:2, 20:3000] *= 0.1  # lists that are cut
    ours, theirs = run(spheres, "cuda", CAMERA), run(spheres, "cpu", CAMERA)
    assert error(ours["image"], theirs["image"].double()) < 1e-4
