"""Shapes, masks and inputs of attention to test with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gsslam.attention import AttentionMask

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int
    mask: AttentionMask | None = None

    def tensors(self, seed: int = 0, magnitude: float = 1.0) -> Tensors:
        """Query, key, value, and gradients of output and log-sum-exp."""
        generator = torch.Generator().manual_seed(seed)
        query, values = (self.batch, self.heads, self.queries), self.value_dim
        token = (self.batch, self.kv_heads, self.keys)
        shapes = [(*query, self.dim), (*token, self.dim), (*token, values), (*query, values), query]
        tensors = [torch.randn(shape, generator=generator) for shape in shapes]
        return magnitude * tensors[0], *tensors[1:]


def lengths(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


CASES = {
    "one": Case(1, 1, 1, 1, 1, 1, 1),
    "odd": Case(1, 1, 1, 5, 7, 3, 5),
    "one over a tile": Case(1, 2, 2, 65, 129, 33, 47),
    "dictionary": Case(1, 1, 1, 131, 200, 32, 384),
    "wide": Case(1, 1, 1, 70, 90, 384, 768),
    "grouped": Case(2, 6, 2, 67, 100, 32, 48),
    "multi-query": Case(1, 5, 1, 40, 70, 16, 24),
    "causal": Case(1, 2, 1, 130, 130, 32, 32, AttentionMask.causal()),
    "causal, last query at the last key": Case(
        1, 2, 2, 30, 150, 16, 16, AttentionMask.causal(offset=120)
    ),
    "causal window": Case(1, 1, 1, 200, 200, 16, 16, AttentionMask.causal(window=70)),
    "window both ways": Case(1, 2, 1, 150, 190, 24, 40, AttentionMask(3, 66, 10)),
    "window beyond the keys": Case(1, 1, 1, 200, 60, 8, 8, AttentionMask(5, 5)),
    "nobody sees anything": Case(1, 1, 1, 20, 30, 8, 8, AttentionMask(0, 0, 100)),
    "padding": Case(4, 2, 1, 70, 140, 16, 24, AttentionMask.padding(lengths(140, 0, 1, 65))),
    "causal, window, padding": Case(
        3, 4, 2, 100, 100, 16, 32, AttentionMask(40, 0, 3, lengths(100, 37, 0))
    ),
}
