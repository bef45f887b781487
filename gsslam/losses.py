"""The mapping loss of one view: colour L1 and D-SSIM, depth L1 where measured, and coverage.

Colour follows Kerbl et al., "3D Gaussian splatting for real-time radiance field rendering" (2023),
equation 7; SSIM is Wang et al., "Image quality assessment: from error visibility to structural
similarity" (2004), equation 13.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
from torch.nn.functional import conv2d

from gsslam import _native
from gsslam.errors import NativeError
from gsslam.native import Plan, native_structure

WINDOW = 11  # pixels on a side of SSIM's window
WINDOW_SIGMA = 1.5  # pixels
C1, C2 = 0.01**2, 0.03**2


@dataclass(frozen=True)
class LossWeights:
    """How the parts of the loss add up."""

    ssim: float = 0.2  # lambda: colour is (1 - lambda) L1 + lambda (1 - SSIM)
    depth: float = 0.1  # per metre
    silhouette: float = 0.0
    # The rendered depth is compared only where the silhouette is over this; at least 0.
    silhouette_threshold: float = 0.5

    def __post_init__(self) -> None:
        if not self.silhouette_threshold >= 0:
            raise NativeError(
                f"silhouette_threshold must be at least 0; got {self.silhouette_threshold}"
            )


class LossParts(NamedTuple):
    """The reference loss and its parts, before they are weighted: scalar tensors."""

    total: torch.Tensor
    l1: torch.Tensor
    dssim: torch.Tensor  # 1 - SSIM; 0 if its weight is 0
    depth: torch.Tensor  # metres
    silhouette: torch.Tensor


def ssim_map(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return SSIM (C, H, W) of the windows around every pixel of two images (C, H, W) in 0..1.

    Outside of the images, pixels count as 0 and with their full weight.
    """
    offsets = torch.arange(WINDOW, dtype=x.dtype) - WINDOW // 2
    profile = torch.exp(-(offsets**2) / (2 * WINDOW_SIGMA**2))
    profile = profile / profile.sum()
    row, column = profile.view(1, 1, 1, -1), profile.view(1, 1, -1, 1)

    def mean(image: torch.Tensor) -> torch.Tensor:
        rows = conv2d(image[:, None], row, padding=(0, WINDOW // 2))
        return conv2d(rows, column, padding=(WINDOW // 2, 0))[:, 0]

    mean_x, mean_y = mean(x), mean(y)
    variance_x = mean(x * x) - mean_x**2
    variance_y = mean(y * y) - mean_y**2
    covariance = mean(x * y) - mean_x * mean_y
    return ((2 * mean_x * mean_y + C1) * (2 * covariance + C2)) / (
        (mean_x**2 + mean_y**2 + C1) * (variance_x + variance_y + C2)
    )


def image_loss_reference(
    rendered: torch.Tensor,
    colour: torch.Tensor,
    depth: torch.Tensor,
    weights: LossWeights,
    *,
    gain: torch.Tensor | float = 1.0,
    bias: torch.Tensor | float = 0.0,
) -> LossParts:
    """Return the loss of a rendered view, differentiable in it and in the exposure.

    Args:
        rendered: (5 or more, H, W): colour, sum of weight x depth, sum of weight.
        colour: (3, H, W) observed, 0..1.
        depth: (H, W) metres; no measurement where it is not positive and finite.
        weights: how the parts add up.
        gain: exposure: gain x rendered colour + bias is compared with the observed one.
        bias: see gain.
    """
    compared = gain * rendered[:3] + bias  # (3, H, W)
    weight_depth, silhouette = rendered[3], rendered[4]  # (H, W)
    l1 = (compared - colour).abs().mean()
    dssim = 1 - ssim_map(compared, colour).mean() if weights.ssim != 0 else torch.zeros_like(l1)

    measured = torch.isfinite(depth) & (depth > 0)
    valid = measured & (silhouette > weights.silhouette_threshold)
    expected = weight_depth[valid] / silhouette[valid]
    # Over all pixels: otherwise the weight of one would jump as others become valid.
    depth_l1 = (expected - depth[valid]).abs().sum() / depth.numel()
    uncovered = (1 - silhouette[measured]).sum() / max(1, int(measured.sum()))
    total = (
        (1 - weights.ssim) * l1
        + weights.ssim * dssim
        + weights.depth * depth_l1
        + weights.silhouette * uncovered
    )
    return LossParts(total, l1, dssim, depth_l1, uncovered)


class ImageLoss:
    """The native loss, for float32 tensors; it computes what ``image_loss_reference`` says.

    It owns scratch memory that grows with the image, so one object serves one thread at a time. The
    result is the same to the byte for any number of threads.
    """

    def __init__(self, weights: LossWeights, device: torch.device | str = "cpu") -> None:
        self._plan = Plan("ImageLoss", device)
        self._weights = native_structure("LossWeights", **asdict(weights))

    def bytes(self) -> int:
        """Return how much memory the buffers take."""
        return self._plan.bytes()

    def evaluate(
        self,
        rendered: torch.Tensor,
        colour: torch.Tensor,
        depth: torch.Tensor,
        *,
        gradient: torch.Tensor,
        error: torch.Tensor,
        gain: float = 1.0,
        bias: float = 0.0,
    ) -> _native.LossValue:
        """Return the loss, its parts and its derivatives by gain and bias.

        Args:
            rendered: (P, H, W), P >= 5.
            colour: (3, H, W).
            depth: (H, W) metres.
            gradient: (P, H, W), its first five planes are set to dL / d rendered.
            error: (H, W), set to the mean over the colours of |compared - observed|.
            gain: exposure.
            bias: exposure.

        Raises NativeError for a tensor of another type, shape or device.
        """
        value: _native.LossValue = self._plan.call(
            "evaluate",
            rendered=rendered,
            colour=colour,
            depth=depth,
            gain=gain,
            bias=bias,
            weights=self._weights,
            gradient=gradient,
            error=error,
        )
        return value
