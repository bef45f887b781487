"""Image scores: known values, pytorch-msssim as the oracle, and properties."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_msssim import ssim as oracle_ssim

from gsslam.camera import Camera
from gsslam.evaluation.images import (
    depth_l1_cm,
    exposure_fitted,
    psnr,
    score_view,
    ssim,
    unit_image,
)
from gsslam.frame import Frame
from gsslam.results import RenderedView

seeds = st.integers(0, 2**32 - 1)


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def test_psnr_of_a_known_error() -> None:
    image = noise(0, 20, 30, 3) * 0.5
    assert psnr(image + np.float32(0.1), image) == pytest.approx(20, abs=1e-5)
    assert psnr(image + np.float32(0.01), image) == pytest.approx(40, abs=1e-4)
    assert psnr(image, image) == 100


def test_black_pixels_count_as_any_other() -> None:
    image = noise(1, 10, 10, 3)
    rendered = image.copy()
    rendered[:5] = 0
    expected = -10 * np.log10(np.mean(image[:5].astype(np.float64) ** 2) / 2)
    assert psnr(rendered, image) == pytest.approx(expected, abs=1e-6)


def test_fitted_exposure_undoes_gain_and_bias() -> None:
    image = 0.2 + 0.6 * noise(2, 24, 32, 3)
    rendered = ((image - 0.05) / 1.1).astype(np.float32)
    assert psnr(rendered, image) < 30
    np.testing.assert_allclose(exposure_fitted(rendered, image), image, atol=1e-6)


@given(seeds, st.floats(0, 1), st.floats(0.3, 2), st.floats(-0.3, 0.3))
@settings(max_examples=40, deadline=None)
def test_fitting_the_exposure_never_lowers_psnr(
    seed: int, share: float, gain: float, bias: float
) -> None:
    image = noise(seed, 12, 16, 3)
    mixed = gain * (share * image + (1 - share) * noise(seed + 1, 12, 16, 3)) + bias
    rendered = np.clip(mixed, 0, 1).astype(np.float32)
    assert psnr(exposure_fitted(rendered, image), image) >= psnr(rendered, image) - 1e-5


def test_even_views_can_be_fitted() -> None:
    image = noise(3, 12, 16, 3)
    np.testing.assert_allclose(
        exposure_fitted(np.full_like(image, 0.2), image), image.mean(), atol=1e-6
    )


@pytest.mark.parametrize("size", [(48, 64), (11, 11), (37, 53)])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_ssim_agrees_with_pytorch_msssim(size: tuple[int, int], share: float) -> None:
    image, other = noise(4, *size, 3), noise(5, *size, 3)
    rendered = share * image + (np.float32(1) - share) * cv2.GaussianBlur(other, (5, 5), 1.0)
    assert ssim(rendered, image) == pytest.approx(torch_ssim(rendered, image), abs=5e-6)


def test_ssim_agrees_on_a_real_image(data_root: Path) -> None:
    file = data_root / "seven_scenes_redkitchen" / "frame-000000.color.jpg"
    image = unit_image(cv2.imread(str(file)))
    rendered = cv2.GaussianBlur(image, (9, 9), 2.0)
    assert ssim(rendered, image) == pytest.approx(torch_ssim(rendered, image), abs=5e-6)
    assert ssim(image, image) == pytest.approx(1, abs=1e-6)


def torch_ssim(rendered: np.ndarray, image: np.ndarray) -> float:
    # float64 arithmetic; its window is rounded to float32 all the same, which costs 2e-6.
    x, y = (torch.from_numpy(a).double().permute(2, 0, 1)[None] for a in (rendered, image))
    return float(oracle_ssim(x, y, data_range=1.0))


def test_depth_error_is_over_pixels_valid_in_both() -> None:
    rendered = np.array([[1.0, 0.0, 2.0, 3.0]], np.float32)
    measured = np.array([[1.1, 5.0, 0.0, 2.7]], np.float32)
    assert depth_l1_cm(rendered, measured) == pytest.approx(20, abs=1e-4)
    assert depth_l1_cm(rendered, np.zeros_like(measured)) is None


def test_scores_of_a_view() -> None:
    rgb = (255 * noise(6, 16, 16, 3)).astype(np.uint8)
    depth = np.full((16, 16), 2, np.float32)
    depth[:8] = 0
    frame = Frame(0, 0.0, rgb, depth, Camera(16, 16, 10, 10, 8, 8))
    overshooting = unit_image(rgb) * 1
    overshooting[rgb == 255] = 1.4
    covered = depth.copy()
    covered[8:12] = 0
    score = score_view(RenderedView(overshooting, covered, np.ones_like(depth)), frame)
    # Where the image is white, a view brighter than white is no worse than white.
    assert score.psnr_db == score.psnr_exposure_db == 100
    assert score.ssim == pytest.approx(1, abs=1e-6)
    assert score.depth_l1_cm == 0
    assert score.depth_coverage_pct == 50
