"""Tokens in pages: the same attention as over tokens in one piece, and no page lost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsslam.attention import AttentionMask, PagedTokens, attention
from gsslam.attention.paged import PAGE_TOKENS
from gsslam.errors import NativeError
from tests.attention.cases import lengths


def tokens(count: int, seed: int, heads: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(heads, count, dim, generator=generator) for dim in (8, 12))


def test_attention_over_pages_gives_the_bytes_of_attention_over_one_piece(isa: str) -> None:
    store, sizes = PagedTokens(12, 2, 8, 12), {"a": 150, "b": 3, "c": 64}
    contents = {name: tokens(size, seed) for seed, (name, size) in enumerate(sizes.items())}
    for part in range(2):  # in two parts each, so that their pages are mixed
        for name, (key, value) in contents.items():
            half = slice(0, 1) if part == 0 else slice(1, None)
            store.append(name, key[:, half], value[:, half])
    query = torch.randn(4, 4, 70, 8)
    output = store.attention(query, ["c", "a", "nobody", "b"])
    longest = max(sizes.values())
    padded = [torch.zeros(4, 2, longest, dim) for dim in (8, 12)]
    for item, name in enumerate(["c", "a", None, "b"]):
        for whole, part in zip(padded, contents.get(name, ()), strict=False):
            whole[item, :, : part.shape[1]] = part
    mask = AttentionMask.padding(lengths(64, 150, 0, 3))
    assert torch.equal(output, attention(query, *padded, mask))
    assert not output[2].any()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["add", "cut", "drop"]), st.integers(0, 150)
        )
    )
)
def test_sequences_grow_and_shrink_without_losing_pages(steps: list[tuple[str, str, int]]) -> None:
    pages = 7
    store = PagedTokens(pages, 2, 8, 12)
    model: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for seed, (name, action, size) in enumerate(steps):
        if action == "add":
            added = tokens(size, seed)
            try:
                store.append(name, *added)
            except NativeError:
                assert store.free_pages < -(-size // PAGE_TOKENS)
                continue
            old = model.get(name, tokens(0, 0))
            model[name] = tuple(torch.cat(pair, 1) for pair in zip(old, added, strict=True))
        elif name in model:
            kept = min(size, store.length(name)) if action == "cut" else 0
            model[name] = tuple(part[:, :kept] for part in model[name])
            store.truncate(name, kept)
            if action == "drop":
                store.remove(name)
                del model[name]
        used = sum(-(-part[0].shape[1] // PAGE_TOKENS) for part in model.values())
        assert store.free_pages == pages - used
        assert set(store.names) == set(model)
        for other, parts in model.items():
            assert all(map(torch.equal, store.tokens(other), parts))


def test_a_full_store_refuses_and_changes_nothing() -> None:
    store = PagedTokens(2, 2, 8, 12)
    store.append("a", *tokens(70, 0))
    before = store.tokens("a")
    with pytest.raises(NativeError, match="1 pages needed, 0 free"):
        store.append("b", *tokens(1, 1))
    store.append("a", *tokens(58, 2))  # fills the second page
    with pytest.raises(NativeError, match="full"):
        store.append("a", *tokens(1, 3))
    assert store.length("a") == 128
    assert torch.equal(store.tokens("a")[0][:, :70], before[0])
    assert store.names == ("a",)


def test_refuses_what_does_not_fit() -> None:
    store = PagedTokens(2, 2, 8, 12)
    key, value = tokens(5, 0)
    with pytest.raises(NativeError, match="value must be"):
        store.append("a", key, value[:, :4])
    with pytest.raises(NativeError, match="key must be"):
        store.append("a", key.double(), value)
    with pytest.raises(NativeError, match="no sequence"):
        store.remove("a")
    with pytest.raises(NativeError, match="cannot keep"):
        store.truncate("a", 1)
    with pytest.raises(NativeError, match="query"):
        store.attention(torch.zeros(1, 3, 1, 8), ["a"])
    with pytest.raises(NativeError, match="at least 1"):
        PagedTokens(0, 1, 1, 1)
