"""Gauss-Newton normal equations of camera pose and exposure: native, and their specification.

Unknowns (8): the twist (translation, rotation) of exp(xi) T_camera_world, then gain and bias of
observed = gain * rendered + bias.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd import forward_ad

from gsslam import _native
from gsslam.camera import Camera
from gsslam.native import Plan, native_structure
from gsslam.raster.constants import PLANE_DEPTH, PLANE_SILHOUETTE
from gsslam.raster.plan import RasterPlan
from gsslam.raster.reference import rasterize_reference

UNKNOWNS = 8
# Square of the depth residual, in sigmas, where its weight has fallen to a quarter.
DEPTH_SCALE2 = 9.0
# Pixels on a side of a patch of PatchSampling.
PATCH = 4
_GOLDEN_SHARE = (3 - 5**0.5) / 2
_HESSIAN = UNKNOWNS * (UNKNOWNS + 1) // 2


@dataclass(frozen=True)
class ResidualWeights:
    """Units and robust limits of the residuals."""

    # Colour residual (0 to 1) where Huber's weight starts to fall; also the unit of colour.
    huber_colour: float
    # Weight of a depth residual of one sigma against a colour residual of one unit.
    depth_weight: float
    # Depth noise in metres: base + quadratic z^2.
    depth_sigma_base: float
    depth_sigma_quadratic: float
    # Pixels that the map covers less take no part.
    silhouette_threshold: float

    def to_native(self) -> _native.TrackingWeights:
        """Return them as the kernels read them."""
        weights: _native.TrackingWeights = native_structure("TrackingWeights", **asdict(self))
        return weights


@dataclass(frozen=True)
class PatchSampling:
    """Which pixels take part: one patch of 4 x 4 in ``stride``, spread evenly."""

    stride: int = 1

    @staticmethod
    def at_most(max_pixels: int, camera: Camera) -> PatchSampling:
        """Return the densest sampling of a camera's image of about ``max_pixels``; 0 takes all."""
        return PatchSampling(-(-camera.width * camera.height // max_pixels) if max_pixels else 1)

    @property
    def skew(self) -> int:
        """Patches from a taken one to the nearest in the next row of patches.

        About 0.38 of the stride, so that neighbours lie far apart, and without a common divisor,
        so that every column has its turn.
        """
        first = int(np.ceil(_GOLDEN_SHARE * self.stride))
        return next(skew for skew in itertools.count(first) if np.gcd(skew, self.stride) == 1)

    @cache  # noqa: B019 - a few values for each size of image
    def pixels(self, height: int, width: int) -> int:
        """Return how many pixels take part."""
        return int(self.mask(height, width).sum())

    def mask(self, height: int, width: int) -> torch.Tensor:
        """Return (H, W) bool: the pixels that take part."""
        row, column = torch.arange(height) // PATCH, torch.arange(width) // PATCH
        return (column + self.skew * row[:, None]) % self.stride == 0


ALL_PIXELS = PatchSampling()


@dataclass(frozen=True)
class NormalEquations:
    """Sums over the image; the step is -solve(hessian, gradient)."""

    # (8, 8) weighted J^T J.
    hessian: NDArray[np.float64]
    # (8,) weighted J^T r.
    gradient: NDArray[np.float64]
    # Sum of Huber costs, residuals in units of their noise.
    cost: float
    # Pixels that took part.
    pixels: float
    # Root-mean-square colour residual over them, 0 to 1.
    colour_rms: float
    # Pixels among them with a measured depth, and their root-mean-square residual in metres.
    depth_pixels: float
    depth_rms: float

    def mean_cost(self) -> float:
        """Return the cost of a pixel that took part; infinite where none did."""
        return self.cost / self.pixels if self.pixels else float("inf")

    @staticmethod
    def from_sums(sums: NDArray[np.float64]) -> NormalEquations:
        """Unpack the native sums (cuda_ext/tracking/tracking.h)."""
        hessian = np.zeros((UNKNOWNS, UNKNOWNS))
        hessian[np.triu_indices(UNKNOWNS)] = sums[:_HESSIAN]
        hessian += np.triu(hessian, 1).T
        gradient = sums[_HESSIAN : _HESSIAN + UNKNOWNS]
        cost, pixels, colour, depth_pixels, depth = sums[_HESSIAN + UNKNOWNS :].tolist()
        colour_rms = float(np.sqrt(colour / max(3 * pixels, 1)))
        depth_rms = float(np.sqrt(depth / max(depth_pixels, 1)))
        return NormalEquations(hessian, gradient, cost, pixels, colour_rms, depth_pixels, depth_rms)


class NormalEquationSolver:
    """Forms the normal equations of what a RasterPlan has projected, without allocating."""

    def __init__(self, weights: ResidualWeights, device: torch.device | str = "cpu") -> None:
        self._plan = Plan("Tracking", device)
        self._weights = weights.to_native()

    def bytes(self) -> int:
        """Return how much memory the buffers take."""
        return self._plan.bytes()

    def form(
        self,
        plan: RasterPlan,
        rgb: torch.Tensor,
        depth: torch.Tensor,
        gain: float,
        bias: float,
        sampling: PatchSampling = ALL_PIXELS,
    ) -> NormalEquations:
        """Compare with colours ``rgb`` (3, H, W), 0 to 1, and ``depth`` (H, W) in metres.

        Only the CPU can leave pixels out.
        """
        return self._sums("normal_equations", plan, (rgb, depth, gain, bias), sampling)

    def compare(
        self,
        plan: RasterPlan,
        rgb: torch.Tensor,
        depth: torch.Tensor,
        gain: float,
        bias: float,
        sampling: PatchSampling = ALL_PIXELS,
    ) -> NormalEquations:
        """Return the same with Hessian and gradient left zero, in a third of the time; CPU only."""
        return self._sums("residuals", plan, (rgb, depth, gain, bias), sampling)

    def _sums(
        self,
        operation: str,
        plan: RasterPlan,
        observation: tuple[torch.Tensor, torch.Tensor, float, float],
        sampling: PatchSampling,
    ) -> NormalEquations:
        rgb, depth, gain, bias = observation
        _, height, width = plan.image_shape
        self._plan.sizes["height"], self._plan.sizes["width"] = height, width
        sampled = {}
        if self._plan.device.type == "cpu":
            sampled = {"stride": sampling.stride, "skew": sampling.skew}
        sums = self._plan.call(
            operation,
            plan=plan.native,
            rgb=rgb,
            depth=depth,
            gain=gain,
            bias=bias,
            weights=self._weights,
            **sampled,
        )
        return NormalEquations.from_sums(np.asarray(sums))


def normal_equations_reference(
    parameters: torch.Tensor,
    T_camera_world: torch.Tensor,
    camera: Camera,
    low_pass: float,
    rgb: torch.Tensor,
    depth: torch.Tensor,
    gain: float,
    bias: float,
    weights: ResidualWeights,
    sampling: PatchSampling = ALL_PIXELS,
) -> NormalEquations:
    """Form the same equations in float64 by automatic differentiation; for small images."""
    rgb, depth = rgb.double(), depth.double()

    def render(unknowns: torch.Tensor) -> torch.Tensor:
        T = _moved(T_camera_world.double(), unknowns[:6])
        return rasterize_reference(parameters.detach(), T, camera, low_pass)

    silhouette = render(torch.zeros(UNKNOWNS, dtype=torch.float64))[PLANE_SILHOUETTE]
    valid = sampling.mask(*depth.shape) & (silhouette >= weights.silhouette_threshold)
    measured = valid & (depth > 0) & depth.isfinite()
    sigma = weights.depth_sigma_base + weights.depth_sigma_quadratic * depth**2

    def residuals(unknowns: torch.Tensor) -> torch.Tensor:
        planes = render(unknowns)
        exposed = (gain + unknowns[6]) * planes[:3] + (bias + unknowns[7])
        colour = (exposed - rgb)[:, valid] / weights.huber_colour
        expected = planes[PLANE_DEPTH][measured] / planes[PLANE_SILHOUETTE][measured]
        return torch.cat([colour.reshape(-1), (expected - depth[measured]) / sigma[measured]])

    r, J = _with_jacobian(residuals, torch.zeros(UNKNOWNS, dtype=torch.float64))
    return weighted_equations(r, J, 3 * int(valid.sum()), sigma[measured], weights)


def weighted_equations(
    r: torch.Tensor,
    J: torch.Tensor,
    num_colours: int,
    sigma: torch.Tensor,
    weights: ResidualWeights,
) -> NormalEquations:
    """Weigh residuals (n,) and their Jacobian (n, 8): first the colours', then those of depth.

    Colour by Huber, depth by Geman and McClure: a depth many sigma off is another surface.
    """
    is_colour = torch.arange(len(r), device=r.device) < num_colours
    scale = torch.where(is_colour, 1.0, weights.depth_weight).double()
    huber = torch.where(r.abs() < 1, r**2 / 2, r.abs() - 0.5)
    cost = scale * torch.where(is_colour, huber, DEPTH_SCALE2 / 2 * r**2 / (DEPTH_SCALE2 + r**2))
    outlier = (DEPTH_SCALE2 / (DEPTH_SCALE2 + r**2)) ** 2
    W = scale * torch.where(is_colour, 1 / r.abs().clamp(min=1), outlier)
    colour_squares = float((r[is_colour] * weights.huber_colour).square().sum())
    depth_squares = float((r[~is_colour] * sigma).square().sum())
    return NormalEquations(
        ((J * W[:, None]).T @ J).cpu().numpy(),
        (J.T @ (W * r)).cpu().numpy(),
        float(cost.sum()),
        num_colours / 3,
        float(np.sqrt(colour_squares / max(num_colours, 1))),
        float(len(sigma)),
        float(np.sqrt(depth_squares / max(len(sigma), 1))),
    )


def _with_jacobian(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``function(x)`` (n,) and its derivative (n, m) by ``x`` (m,), in forward mode."""
    columns = []
    for direction in torch.eye(len(x), dtype=x.dtype):
        with forward_ad.dual_level():
            dual = function(forward_ad.make_dual(x, direction))  # type: ignore[no-untyped-call]
            value, tangent = forward_ad.unpack_dual(dual)  # type: ignore[no-untyped-call]
            columns.append(torch.zeros_like(value) if tangent is None else tangent)
    return value, torch.stack(columns, dim=1)


def _moved(T: torch.Tensor, xi: torch.Tensor) -> torch.Tensor:
    """Return (I + hat(xi)) T, (4, 4), which at zero has the derivative of exp(xi) T."""
    v, w = xi[:3], xi[3:]
    zero = torch.zeros((), dtype=torch.float64)
    generator = torch.stack(
        [
            torch.stack([zero, -w[2], w[1], v[0]]),
            torch.stack([w[2], zero, -w[0], v[1]]),
            torch.stack([-w[1], w[0], zero, v[2]]),
            torch.zeros(4, dtype=torch.float64),
        ]
    )
    return T + generator @ T
