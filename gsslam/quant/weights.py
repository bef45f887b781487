"""4-bit weights: rounded in groups with zero points, and packed as the kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from gsslam.errors import NativeError

GROUP = 128  # inputs that share a scale and a zero point
BLOCK = 32  # inputs that share an activation's scale
OUTPUT_TILE = 16  # outputs whose weights are interleaved
_STEP = 8  # inputs whose weights lie together


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A weight (N, K) as scale · (code − zero), G = K / 128 rounded up groups of inputs.

    codes (N, K) uint8 and zeros (N, G) uint8, 0 to 15; scales (N, G) float32.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor


def groups_of(inputs: int) -> int:
    """Return the number of groups of so many inputs."""
    return -(-inputs // GROUP)


def by_group(values: torch.Tensor, inputs: int) -> torch.Tensor:
    """Repeat (N, G) values to (N, K)."""
    return values.repeat_interleave(GROUP, 1)[:, :inputs]


def quantize_weight(weight: torch.Tensor) -> QuantizedWeight:
    """Round a weight (N, K) to 4 bits: 16 equal steps from each group's smallest to its largest.

    The range always holds 0, so that every zero point is one of the steps. Raises NativeError for
    weights that are not finite.
    """
    weight = weight.detach().float()
    if weight.dim() != 2 or not weight.isfinite().all():
        raise NativeError("weight must be a finite (outputs, inputs) matrix")
    outputs, inputs = weight.shape
    count = groups_of(inputs)
    grouped = pad(weight, (0, count * GROUP - inputs)).view(outputs, count, GROUP)
    low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
    scales = (high - low) / 15
    scales = torch.where(scales > 0, scales, 1.0)
    zeros = (-low / scales).round().clamp(0, 15)
    codes = (weight / by_group(scales, inputs) + by_group(zeros, inputs)).round().clamp(0, 15)
    return QuantizedWeight(codes.to(torch.uint8), scales, zeros.to(torch.uint8))


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """The same as the kernels read it: outputs in tiles of 16, T of them.

    steps (T, 16 G, 64) uint8: byte 4 o + i of a step of eight inputs has output o's weight of input
    i in its low four bits, that of input i + 4 in the high ones. scales float32 and zeros uint8 are
    (T, G, 16). What fills up tiles and groups is 0.
    """

    steps: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    outputs: int
    inputs: int

    @property
    def nbytes(self) -> int:
        """Bytes of the three tensors."""
        return self.steps.nbytes + self.scales.nbytes + self.zeros.nbytes


def pack(weight: QuantizedWeight) -> PackedWeight:
    """Interleave a quantised weight."""
    outputs, inputs = weight.codes.shape
    count, tiles = groups_of(inputs), -(-outputs // OUTPUT_TILE)
    more_outputs = tiles * OUTPUT_TILE - outputs
    codes = pad(weight.codes, (0, count * GROUP - inputs, 0, more_outputs))
    # (T, output, step, half, input of four) to (T, step, half, output, input of four)
    halves = codes.view(tiles, OUTPUT_TILE, -1, 2, _STEP // 2).permute(0, 2, 3, 1, 4)
    steps = halves[:, :, 0] | (halves[:, :, 1] << 4)

    def tiled(values: torch.Tensor) -> torch.Tensor:
        filled = pad(values, (0, 0, 0, more_outputs))
        return filled.view(tiles, OUTPUT_TILE, count).mT.contiguous()

    return PackedWeight(
        steps.reshape(tiles, -1, OUTPUT_TILE * _STEP // 2).contiguous(),
        tiled(weight.scales),
        tiled(weight.zeros),
        outputs,
        inputs,
    )


def unpack(packed: PackedWeight) -> QuantizedWeight:
    """Undo ``pack``."""
    outputs, inputs = packed.outputs, packed.inputs
    tiles, steps = packed.steps.shape[:2]
    bytes_of = packed.steps.view(tiles, steps, OUTPUT_TILE, _STEP // 2)
    halves = torch.stack([bytes_of & 15, bytes_of >> 4], 3)  # (T, step, output, half, input)
    codes = halves.permute(0, 2, 1, 3, 4).reshape(tiles * OUTPUT_TILE, steps * _STEP)

    def rows(values: torch.Tensor) -> torch.Tensor:
        return values.mT.reshape(tiles * OUTPUT_TILE, -1)[:outputs].contiguous()

    return QuantizedWeight(
        codes[:outputs, :inputs].contiguous(), rows(packed.scales), rows(packed.zeros)
    )
