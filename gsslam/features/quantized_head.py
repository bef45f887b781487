"""The dictionary with 4-bit weights, a seventh of its bytes."""

from __future__ import annotations

import torch
from torch import nn

from gsslam.features.head import FeatureHead
from gsslam.quant import LinearW4A8, search_scales

# Rows of weights that are in memory at a time.
_ROWS = 4096


class QuantizedHead(nn.Module):
    """softmax(Q W Kᵀ) V of a ``FeatureHead`` as two W4A8 layers, W Kᵀ and V; on the CPU.

    Not differentiable. Both layers have scales that minimise the error of their outputs on
    examples.
    """

    def __init__(self, head: FeatureHead, examples: torch.Tensor) -> None:
        """``examples`` (N, D) are queries such as views of the map have."""
        super().__init__()
        count = int(head.count)
        with torch.no_grad():
            keys = head.key[:count].cpu() @ head.weight.cpu().mT  # (A, D)
            values = head.value[:count].cpu().mT  # (C, A)
            examples = examples.detach().cpu()
            self.scores = _quantized(keys, examples)
            self.values = _quantized(values, (examples @ keys.mT).softmax(-1))

    def forward(self, queries: torch.Tensor) -> torch.Tensor:
        """Decode queries (..., D) into features (..., C)."""
        flat = queries.detach().reshape(-1, queries.shape[-1])
        parts = torch.split(flat, _ROWS)
        decoded = [self.values(self.scores(rows).softmax(-1)) for rows in parts]
        return torch.cat(decoded).reshape(*queries.shape[:-1], -1)


def _quantized(weight: torch.Tensor, examples: torch.Tensor) -> LinearW4A8:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
    return LinearW4A8.from_linear(linear, search_scales([weight], examples).scales)
