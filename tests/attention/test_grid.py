"""Every combination of lengths around a tile, masks and group sizes, against the float64 twin."""

from __future__ import annotations

import itertools

import pytest
import torch

from gsslam.attention import AttentionMask, attention
from tests.attention.cases import Case, lengths
from tests.attention.test_native import TOLERANCE, evaluate, exact, relative_error

# One token, and one less, as many and one more than a tile has; odd numbers beyond.
LENGTHS = (1, 2, 63, 64, 65, 129)
GROUPS = ((1, 1), (2, 2), (3, 1), (4, 2), (6, 3))  # heads of queries and of keys
MASKS = {
    "all": lambda queries, keys: AttentionMask(),
    "causal": lambda queries, keys: AttentionMask.causal(offset=keys - queries),
    "window": lambda queries, keys: AttentionMask(7, 2, (keys - queries) // 2),
    "padding": lambda queries, keys: AttentionMask.padding(lengths(keys // 2, keys)),
    "causal window, padding": lambda queries, keys: AttentionMask(
        30, 0, keys - queries, lengths(keys, max(keys - 5, 0))
    ),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", GROUPS, ids=str)
def test_agrees_over_the_grid(heads: tuple[int, int], mask: str) -> None:
    """Forward, log-sum-exp and all gradients, of odd widths."""
    for queries, keys in itertools.product(LENGTHS, LENGTHS):
        case = Case(2, *heads, queries, keys, 9, 13, MASKS[mask](queries, keys))
        inputs = case.tensors(seed=queries + 1000 * keys)
        for ours, right in zip(evaluate(case, inputs), exact(case, inputs), strict=True):
            seen = right.isfinite()  # the log of nothing is -inf
            assert torch.equal(ours.isfinite(), seen)
            # Not relative: with a single key, gradients are what is left of larger sums.
            torch.testing.assert_close(ours[seen].double(), right[seen], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 15, 16, 17, 32, 33])
@pytest.mark.parametrize("value_dim", [1, 17, 257, 384])
def test_agrees_for_any_widths(dim: int, value_dim: int) -> None:
    case = Case(1, 2, 1, 67, 70, dim, value_dim)
    inputs = case.tensors(dim)
    for ours, right in zip(evaluate(case, inputs), exact(case, inputs), strict=True):
        assert relative_error(ours, right) < 2 * TOLERANCE


def test_rows_that_see_nothing_give_zeros_and_take_no_gradient() -> None:
    case = Case(1, 2, 1, 70, 66, 8, 8, AttentionMask(0, 0, 40))  # queries from 26 on see nothing
    query, key, value, grad, _ = case.tensors()
    query.requires_grad_()
    output = attention(query, key, value, case.mask)
    output.backward(grad)
    assert not output[:, :, 26:].any()
    assert query.grad is not None and not query.grad[:, :, 26:].any()
    assert output[:, :, :26].any(-1).all()
