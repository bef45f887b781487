from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import pytest
import torch
from pytorch_msssim import ssim as msssim_ssim

from gsslam import _native
from gsslam.errors import NativeError
from gsslam.losses import ImageLoss, LossWeights, image_loss_reference, ssim_map
from tests.conftest import usable_device

# (height, width): smaller than the window, not a multiple of any vector, several bands of rows.
SIZES = [(1, 1), (5, 7), (17, 33), (11, 16), (49, 130), (60, 80)]
WEIGHTS = LossWeights(ssim=0.2, depth=0.3, silhouette=0.05)
GAIN, BIAS = 1.25, -0.0625  # float32 holds them exactly


@dataclass(frozen=True)
class View:
    rendered: torch.Tensor  # (5, H, W)
    colour: torch.Tensor  # (3, H, W)
    depth: torch.Tensor  # (H, W)


def smooth(generator: torch.Generator, planes: int, height: int, width: int) -> torch.Tensor:
    coarse = torch.rand(1, planes, height // 6 + 2, width // 6 + 2, generator=generator)
    return torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")[0].clamp(0, 1)


def make_view(height: int, width: int, noise: float = 0.05) -> View:
    """An image, a rendering that is somewhat like it, and depth with holes of every kind."""
    g = torch.Generator().manual_seed(height * 1000 + width)
    colour = smooth(g, 3, height, width)
    compared = colour + noise * torch.randn(colour.shape, generator=g)
    silhouette = smooth(g, 1, height, width)
    z = 1 + 2 * smooth(g, 1, height, width)
    depth = (z * (1 + 0.02 * torch.randn(z.shape, generator=g)))[0]
    holes = torch.rand(depth.shape, generator=g)
    for i, hole in enumerate([0.0, float("nan"), float("inf"), -float("inf"), -1.0]):
        depth[(holes > 0.05 * i) & (holes <= 0.05 * (i + 1))] = hole
    rendered = torch.cat([(compared - BIAS) / GAIN, z * silhouette, silhouette])
    return View(rendered.contiguous(), colour.contiguous(), depth.contiguous())


@dataclass(frozen=True)
class Result:
    parts: list[float]
    exposure: list[float]  # d L / d gain and bias
    gradient: torch.Tensor
    error: torch.Tensor


def run_native(
    view: View, weights: LossWeights, loss: ImageLoss | None = None, device: str = "cpu"
) -> Result:
    gradient = torch.full_like(view.rendered, float("nan"), device=device)
    error = torch.full_like(view.depth, float("nan"), device=device)
    value = (loss or ImageLoss(weights, device)).evaluate(
        view.rendered.to(device),
        view.colour.to(device),
        view.depth.to(device),
        gain=GAIN,
        bias=BIAS,
        gradient=gradient,
        error=error,
    )
    parts = [value.total, value.l1, value.dssim, value.depth, value.silhouette]
    exposure = [value.grad_gain, value.grad_bias]
    return Result(parts, exposure, gradient.cpu(), error.cpu())


def run_reference(view: View, weights: LossWeights) -> Result:
    rendered = view.rendered.double().requires_grad_()
    gain = torch.tensor(GAIN, dtype=torch.float64, requires_grad=True)
    bias = torch.tensor(BIAS, dtype=torch.float64, requires_grad=True)
    colour = view.colour.double()
    parts = image_loss_reference(
        rendered, colour, view.depth.double(), weights, gain=gain, bias=bias
    )
    gradients = torch.autograd.grad(parts.total, [rendered, gain, bias])
    error = (gain * rendered[:3] + bias - colour).abs().mean(dim=0).detach()
    exposure = [g.item() for g in gradients[1:]]
    return Result([p.item() for p in parts], exposure, gradients[0], error)


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    difference = torch.linalg.norm(a.double() - b.double())
    return float(difference / torch.linalg.norm(b.double()).clamp(min=1e-30))


def assert_same(native: Result, reference: Result, tolerance: float) -> None:
    assert native.parts == pytest.approx(reference.parts, rel=tolerance, abs=1e-9)
    assert native.exposure == pytest.approx(reference.exposure, rel=tolerance, abs=1e-8)
    assert relative_error(native.error, reference.error) < tolerance
    for plane in range(5):
        if reference.gradient[plane].any():
            error = relative_error(native.gradient[plane], reference.gradient[plane])
            assert error < tolerance, f"plane {plane}"
        else:
            assert not native.gradient[plane].any()


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("ssim", [0.0, 0.2, 1.0])
def test_loss_and_gradients_agree_with_autograd(
    kernels: str, height: int, width: int, ssim: float
) -> None:
    view, weights = make_view(height, width), replace(WEIGHTS, ssim=ssim)
    assert_same(run_native(view, weights, device=kernels), run_reference(view, weights), 1e-5)


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.5])
def test_gradients_hold_for_good_and_bad_renderings(device: str, noise: float) -> None:
    view, weights = make_view(40, 50, noise), replace(WEIGHTS, ssim=1.0)
    native, reference = run_native(view, weights, device=device), run_reference(view, weights)
    if noise == 0:
        assert 0 <= native.parts[2] < 1e-10
        assert native.gradient[:3].abs().max() < 1e-8
    else:
        assert_same(native, reference, 1e-4 if noise < 0.01 else 1e-5)


def test_gradients_hold_on_a_real_frame(data_root: Path, kernels: str) -> None:
    """The rendering is the next frame of a moving camera, at the size that a CPU run uses."""
    folder = data_root / "tum_fr1_xyz"
    files = sorted((folder / "rgb").iterdir())[100:102]
    images = []
    for file in files:
        image = cv2.resize(cv2.imread(str(file)), (320, 240), interpolation=cv2.INTER_AREA)
        images.append(torch.from_numpy(image).permute(2, 0, 1).float() / 255)
    depth_file = sorted((folder / "depth").iterdir())[100]
    raw = cv2.imread(str(depth_file), cv2.IMREAD_UNCHANGED)[::2, ::2]
    depth = torch.from_numpy(raw.astype("float32")) / 5000
    # Noise, so that no two values are equal but for rounding: |x| has no derivative at 0.
    noise = 0.02 * torch.randn(3, 240, 320, generator=torch.Generator().manual_seed(3))
    silhouette = torch.full((1, 240, 320), 0.75)
    geometry = torch.cat([1.01 * depth[None] * silhouette, silhouette])
    compared = torch.cat([(images[1] + noise - BIAS) / GAIN, geometry])
    view = View(compared, images[0].contiguous(), depth)
    assert_same(run_native(view, WEIGHTS, device=kernels), run_reference(view, WEIGHTS), 2e-5)


def test_ssim_is_pytorch_msssims() -> None:
    view = make_view(40, 53)
    x, y = view.rendered[:3].double(), view.colour.double()
    theirs = msssim_ssim(x[None], y[None], data_range=1.0)  # windows inside the image only
    assert float(ssim_map(x, y)[:, 5:-5, 5:-5].mean()) == pytest.approx(float(theirs), rel=1e-6)


def test_native_ssim_is_pytorch_msssims_on_padded_images() -> None:
    view = make_view(40, 53)
    compared = GAIN * view.rendered[:3].double() + BIAS
    pad = torch.nn.ZeroPad2d(5)
    theirs = msssim_ssim(pad(compared)[None], pad(view.colour.double())[None], data_range=1.0)
    assert 1 - run_native(view, WEIGHTS).parts[2] == pytest.approx(float(theirs), rel=1e-6)


def test_nothing_rendered(device: str) -> None:
    view = make_view(20, 30)
    view = replace(view, rendered=torch.zeros_like(view.rendered))
    native = run_native(view, WEIGHTS, device=device)
    assert torch.isfinite(native.gradient).all()
    assert native.parts[3] == 0
    assert native.parts[4] == pytest.approx(1, rel=1e-12)
    assert_same(native, run_reference(view, WEIGHTS), 1e-5)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -1.0])
def test_nothing_measured(device: str, value: float) -> None:
    view = make_view(20, 30)
    view = replace(view, depth=torch.full_like(view.depth, value))
    native = run_native(view, WEIGHTS, device=device)
    assert native.parts[3:] == [0, 0]
    assert not native.gradient[3:].any()
    assert_same(native, run_reference(view, WEIGHTS), 1e-5)


def test_threshold_of_zero_and_silhouette_of_zero(device: str) -> None:
    view, weights = make_view(20, 30), replace(WEIGHTS, silhouette_threshold=0.0)
    view.rendered[3:, :10] = 0
    assert_same(run_native(view, weights, device=device), run_reference(view, weights), 1e-5)


def test_feature_planes_are_left_alone() -> None:
    view = make_view(20, 30)
    expected = run_native(view, WEIGHTS)
    rendered = torch.cat([view.rendered, torch.rand(4, 20, 30)])
    gradient, error = torch.full_like(rendered, 7.0), torch.empty(20, 30)
    ImageLoss(WEIGHTS).evaluate(
        rendered, view.colour, view.depth, gain=GAIN, bias=BIAS, gradient=gradient, error=error
    )
    assert (gradient[5:] == 7).all()
    assert torch.equal(gradient[:5], expected.gradient)


def test_bytes_do_not_depend_on_threads_or_earlier_views() -> None:
    view = make_view(60, 83)
    results = []
    for threads in (1, 2, 3):
        _native.set_thread_count(threads)
        loss = ImageLoss(WEIGHTS)
        results.append(run_native(view, WEIGHTS, loss))
        for height, width in [(9, 200), (130, 5)]:  # the scratch memory is used for other sizes
            run_native(make_view(height, width), WEIGHTS, loss)
        results.append(run_native(view, WEIGHTS, loss))
    for other in results[1:]:
        assert other.parts == results[0].parts
        assert other.exposure == results[0].exposure
        assert torch.equal(other.gradient, results[0].gradient)
        assert torch.equal(other.error, results[0].error)


@pytest.mark.gpu
@pytest.mark.parametrize("ssim", [0.0, 0.2])
def test_sanitize_loss(ssim: float) -> None:
    """Small, for compute-sanitizer: tiles cut on every side, rows of whole quads and others."""
    usable_device("cuda")
    loss, weights = ImageLoss(replace(WEIGHTS, ssim=ssim), "cuda"), replace(WEIGHTS, ssim=ssim)
    for height, width in [(43, 132), (21, 65), (1, 1), (43, 132)]:
        view = make_view(height, width)
        results = [run_native(view, weights, loss, "cuda") for _ in range(3)]
        assert_same(results[0], run_reference(view, weights), 1e-5)
        for other in results[1:]:
            assert other.parts == results[0].parts
            assert other.exposure == results[0].exposure
            assert torch.equal(other.gradient, results[0].gradient)


@pytest.mark.gpu
def test_planes_need_no_alignment() -> None:
    """A rendering that begins at any float is read one by one."""
    usable_device("cuda")
    view = make_view(44, 60)
    storage = torch.zeros(view.rendered.numel() + 1, device="cuda")
    storage[1:] = view.rendered.flatten().cuda()
    shifted = replace(view, rendered=storage[1:].view_as(view.rendered))
    expected = run_native(view, WEIGHTS, device="cuda")
    result = run_native(shifted, WEIGHTS, device="cuda")
    assert result.parts == expected.parts
    assert torch.equal(result.gradient, expected.gradient)


def test_unusable_arguments_are_named() -> None:
    view, loss = make_view(6, 8), ImageLoss(WEIGHTS)
    out = {"gradient": torch.empty(5, 6, 8), "error": torch.empty(6, 8)}
    with pytest.raises(NativeError, match=r"rendered must be .* at least \(5, 1, 1\)"):
        loss.evaluate(view.rendered[:4], view.colour, view.depth, **out)
    with pytest.raises(NativeError, match="colour must be"):
        loss.evaluate(view.rendered, view.colour.double(), view.depth, **out)
    with pytest.raises(NativeError, match="depth must be"):
        loss.evaluate(view.rendered, view.colour, view.depth.T, **out)
    with pytest.raises(NativeError, match="silhouette_threshold"):
        LossWeights(silhouette_threshold=-0.1)
