"""Activation-aware scales: channels that carry much are rounded more finely.

Lin et al., "AWQ: activation-aware weight quantization" (2024), section 3.2: weights times s and
inputs over s give the same product, but weights of large inputs are rounded less. Here the error
that the search minimises is that of the whole layer, the rounding of its inputs included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from gsslam.errors import NativeError
from gsslam.quant.reference import dequantize_rows, dequantize_weight, quantize_rows
from gsslam.quant.weights import quantize_weight

# A channel that calibration hardly ever saw must not be scaled by next to nothing.
_SMALLEST_SHARE = 1e-4


@dataclass(frozen=True, eq=False)
class AwqScales:
    """Scales (K) of a layer's inputs, and what they are good for.

    ``error`` and ``plain_error`` are the squared errors of the outputs on the calibration
    activations over the outputs' squares, with the scales and without.
    """

    scales: torch.Tensor
    alpha: float
    error: float
    plain_error: float


def search_scales(
    weights: Sequence[torch.Tensor],
    activations: torch.Tensor,
    *,
    steps: int = 20,
    round_inputs: bool = True,
) -> AwqScales:
    """Search s = mean|X|^α for the α in [0, 1] with the least error of the layers' outputs.

    ``weights`` (N, K) are those of all layers that share the inputs; ``activations`` (T, K) are
    examples of these. α = 0 is plain rounding, so that the result is never worse on the examples.
    ``round_inputs`` takes the inputs as 8-bit ones, as LinearW4A8 does.
    """
    activations = activations.detach().double()
    _check_examples(activations, weights)
    inputs = activations.shape[1]
    weight = torch.cat([weight.detach().double() for weight in weights])
    magnitude = activations.abs().mean(0)
    magnitude = magnitude.clamp(min=max(float(magnitude.max()), 1e-30) * _SMALLEST_SHARE)
    exact = activations @ weight.mT
    power = float(exact.square().sum().clamp(min=1e-300))

    def error(scales: torch.Tensor) -> float:
        scaled = activations / scales
        if round_inputs:
            scaled = dequantize_rows(*quantize_rows(scaled))
        rounded = dequantize_weight(quantize_weight(weight * scales))
        return float((scaled @ rounded.mT - exact).square().sum()) / power

    best = AwqScales(torch.ones(inputs), 0.0, error(torch.ones(inputs)), 0.0)
    plain_error = best.error
    for step in range(1, steps + 1):
        alpha = step / steps
        scales = magnitude**alpha
        scales = (scales / (scales.max() * scales.min()).sqrt()).float()
        found = error(scales)
        if found < best.error:
            best = AwqScales(scales, alpha, found, 0.0)
    return AwqScales(best.scales, best.alpha, best.error, plain_error)


def _check_examples(activations: torch.Tensor, weights: Sequence[torch.Tensor]) -> None:
    if activations.dim() != 2 or not len(activations) or not activations.isfinite().all():
        raise NativeError("activations must be finite and (examples, inputs), at least one example")
    inputs = activations.shape[1]
    if any(weight.dim() != 2 or weight.shape[1] != inputs for weight in weights):
        raise NativeError(f"all weights must be (outputs, {inputs}), as wide as the activations")


def fold_into_norm(norm: nn.LayerNorm, scales: torch.Tensor) -> None:
    """Make a layer norm give its outputs over ``scales`` (K), in place."""
    if norm.weight is None:
        raise NativeError("a layer norm without weights cannot take scales; use LinearW4A8's own")
    with torch.no_grad():
        norm.weight.div_(scales)
        if norm.bias is not None:
            norm.bias.div_(scales)


def fold_into_linear(linear: nn.Linear, scales: torch.Tensor) -> None:
    """Make a linear layer give its outputs over ``scales`` (N), in place."""
    with torch.no_grad():
        linear.weight.div_(scales[:, None])
        if linear.bias is not None:
            linear.bias.div_(scales)
