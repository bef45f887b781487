"""4-bit weights in the order in which a GPU's tensor cores take them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from gsslam.quant.weights import GROUP, OUTPUT_TILE, QuantizedWeight, groups_of

# Of a tile of outputs and a group of inputs.
FRAGMENT_BYTES = OUTPUT_TILE * GROUP // 2
# From (tile, i, o, group, a, b // 2, t, b % 2, j, h) to (tile, group, a, o, t, b, h, j, i).
_ORDER = (0, 3, 4, 2, 6, 5, 7, 9, 8, 1)
_BACK = tuple(_ORDER.index(dim) for dim in range(len(_ORDER)))


@dataclass(frozen=True, eq=False)
class FragmentWeight:
    """A quantised weight for ``mma.m16n8k16``, outputs in T tiles of 16, inputs in G groups of 128.

    codes (T, G, 1024) uint8; scales float32 and zeros uint8 (T, G, 8, 2) of outputs o and o + 8.
    Word 4 l + b of half a of a unit's codes belongs to lane l = 4 o + t and to the product of step
    s = 4 a + b; its nibble 4 h + 2 j + i is the weight of output o + 8 i and input
    32 (s // 2) + 8 t + 4 (s % 2) + 2 j + h. The inputs of a lane lie side by side like that, so
    that it reads activations by 16 bytes; the order within a sum does not matter to the product.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor


def to_fragments(weight: QuantizedWeight) -> FragmentWeight:
    """Reorder a quantised weight; what fills up tiles and groups is 0."""
    outputs, inputs = weight.codes.shape
    tiles, groups = -(-outputs // OUTPUT_TILE), groups_of(inputs)
    more = tiles * OUTPUT_TILE - outputs
    codes = pad(weight.codes, (0, groups * GROUP - inputs, 0, more))
    pairs = codes.view(tiles, 2, 8, groups, 2, 2, 4, 2, 2, 2).permute(_ORDER)
    pairs = pairs.reshape(tiles, groups, FRAGMENT_BYTES, 2)

    def by_output(values: torch.Tensor) -> torch.Tensor:
        filled = pad(values, (0, 0, 0, more)).view(tiles, 2, 8, groups)
        return filled.permute(0, 3, 2, 1).contiguous()

    return FragmentWeight(
        (pairs[..., 0] | (pairs[..., 1] << 4)).contiguous(),
        by_output(weight.scales),
        by_output(weight.zeros),
    )


def from_fragments(fragments: FragmentWeight, outputs: int, inputs: int) -> QuantizedWeight:
    """Undo ``to_fragments`` on a weight (outputs, inputs), on the fragments' device."""
    tiles, groups = fragments.codes.shape[:2]
    pairs = torch.stack([fragments.codes & 15, fragments.codes >> 4], -1)
    nibbles = pairs.view(tiles, groups, 2, 8, 4, 2, 2, 2, 2, 2).permute(_BACK)
    codes = nibbles.reshape(tiles * OUTPUT_TILE, groups * GROUP)

    def rows(values: torch.Tensor) -> torch.Tensor:
        return values.permute(0, 3, 2, 1).reshape(tiles * OUTPUT_TILE, groups)[:outputs]

    return QuantizedWeight(codes[:outputs, :inputs], rows(fragments.scales), rows(fragments.zeros))
