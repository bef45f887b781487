"""How well a rendered view matches the image it stands for. Every pixel counts, black ones too."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.frame import Frame
from gsslam.results import RenderedView

Image = NDArray[np.float32]

# Mean squared errors under this count as this much: an exact match scores 100 dB, not infinity.
_SMALLEST_MSE = 1e-10
_SSIM_WINDOW = 11
_SSIM_SIGMA = 1.5
_SSIM_C1, _SSIM_C2 = 0.01**2, 0.03**2


@dataclass(frozen=True)
class ViewScore:
    """Scores of one rendered view."""

    psnr_db: float
    # After the one gain and bias that fit the view best: exposure differences do not count.
    psnr_exposure_db: float
    ssim: float
    # Mean over the pixels where both depths are valid; None where there is no such pixel.
    depth_l1_cm: float | None
    # Share of the measured depth pixels that the view covers, percent; None where none is measured.
    depth_coverage_pct: float | None


def score_view(view: RenderedView, frame: Frame) -> ViewScore:
    """Return the scores of ``view`` against ``frame``, which has the same size."""
    rendered = np.clip(view.colour, 0, 1)  # a display would do the same
    image = unit_image(frame.rgb)
    measured, covered = frame.depth > 0, view.depth > 0
    return ViewScore(
        psnr_db=psnr(rendered, image),
        psnr_exposure_db=psnr(exposure_fitted(rendered, image), image),
        ssim=ssim(rendered, image),
        depth_l1_cm=depth_l1_cm(view.depth, frame.depth),
        depth_coverage_pct=100 * float(np.mean(covered[measured])) if measured.any() else None,
    )


def unit_image(rgb: NDArray[np.uint8]) -> Image:
    """Return ``rgb`` (H, W, 3) as float32, 0 to 1."""
    return rgb.astype(np.float32) / np.float32(255)


def psnr(rendered: Image, image: Image) -> float:
    """Return the peak signal-to-noise ratio in dB of two images (H, W, 3), 0 to 1; at most 100."""
    error = rendered.astype(np.float64) - image
    return float(-10 * np.log10(max(float(np.mean(error * error)), _SMALLEST_MSE)))


def exposure_fitted(rendered: Image, image: Image) -> Image:
    """Return ``gain * rendered + bias``, clipped to 0..1, for the least-squares gain and bias.

    One gain and one bias serve all pixels and channels of the images (H, W, 3).
    """
    x, y = rendered.astype(np.float64).ravel(), image.astype(np.float64).ravel()
    x_mean, y_mean = x.mean(), y.mean()
    variance = np.mean((x - x_mean) ** 2)
    # An even view has no contrast to stretch: only the bias can help it.
    gain = np.mean((x - x_mean) * (y - y_mean)) / variance if variance > 1e-12 else 0.0
    fitted = np.clip(gain * (rendered - x_mean) + y_mean, 0, 1)
    return np.asarray(fitted, dtype=np.float32)


def ssim(rendered: Image, image: Image) -> float:
    """Return the mean structural similarity of two images (H, W, 3), 0 to 1.

    Wang et al. (TIP 2004), equation 13: Gaussian window of 11 pixels and sigma 1.5, each channel by
    itself, only where the window lies inside the image (the whole of an image smaller than that).
    """
    mu_x, mu_y = _blur(rendered), _blur(image)
    var_x = _blur(rendered * rendered) - mu_x * mu_x
    var_y = _blur(image * image) - mu_y * mu_y
    covariance = _blur(rendered * image) - mu_x * mu_y
    similarity = (2 * mu_x * mu_y + _SSIM_C1) * (2 * covariance + _SSIM_C2)
    similarity /= (mu_x * mu_x + mu_y * mu_y + _SSIM_C1) * (var_x + var_y + _SSIM_C2)
    margin = _SSIM_WINDOW // 2
    if min(image.shape[:2]) >= _SSIM_WINDOW:
        similarity = similarity[margin:-margin, margin:-margin]
    return float(similarity.mean(dtype=np.float64))


def _blur(image: Image) -> Image:
    return np.asarray(cv2.GaussianBlur(image, (_SSIM_WINDOW, _SSIM_WINDOW), _SSIM_SIGMA))


def depth_l1_cm(rendered: Image, measured: Image) -> float | None:
    """Return the mean absolute difference of two depth images (H, W) in metres, as centimetres.

    Pixels without depth (0) in either are left out; None where no pixel remains.
    """
    valid = (rendered > 0) & (measured > 0)
    if not valid.any():
        return None
    return 100 * float(np.mean(np.abs(rendered[valid] - measured[valid]), dtype=np.float64))
