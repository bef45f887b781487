"""The quantised linear layer as plain PyTorch: the specification of the native kernels.

Rounding to integers is done in float32, as the kernels do it, so that both round alike; everything
behind it is exact arithmetic in float64.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from gsslam.quant.weights import BLOCK, GROUP, QuantizedWeight, by_group


def dequantize_weight(weight: QuantizedWeight) -> torch.Tensor:
    """Return scale · (code − zero), float64 (N, K)."""
    inputs = weight.codes.shape[1]
    zeros, scales = (by_group(x.double(), inputs) for x in (weight.zeros, weight.scales))
    return scales * (weight.codes.double() - zeros)


def quantize_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round rows (M, K) to 8 bits, symmetric around 0, each 32 inputs with a scale of their own.

    Returns values (M, K) int8 within ±127, and scales (M, B) float32: the largest magnitude of a
    block over 127. Halves round to even. Blocks are filled up with zeros.
    """
    rows = rows.float()
    count, inputs = rows.shape
    blocks = pad(rows, (0, -inputs % GROUP)).view(count, -1, BLOCK)
    most = blocks.abs().amax(2, keepdim=True)
    inverse = torch.where(most > 0, 127 / most, 0.0)
    values = (blocks * inverse).round().to(torch.int8)
    return values.view(count, -1)[:, :inputs], most[..., 0] / 127


def dequantize_rows(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return what ``quantize_rows`` stands for, float64 (M, K)."""
    return values.double() * scales.double().repeat_interleave(BLOCK, 1)[:, : values.shape[1]]


def linear_reference(
    rows: torch.Tensor,
    weight: QuantizedWeight,
    bias: torch.Tensor | None = None,
    factors: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return float64 (M, N): rows (M, K), times ``factors`` (K), in 8 bits, times 4-bit weights."""
    scaled = rows.float() if factors is None else rows.float() * factors
    product = dequantize_rows(*quantize_rows(scaled)) @ dequantize_weight(weight).mT
    return product if bias is None else product + bias.double()
