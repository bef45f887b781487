"""Tokens in pages of one size, so that sequences grow and shrink without copies or gaps.

Kwon et al., "Efficient memory management for large language model serving with PagedAttention"
(2023), section 4. Here a sequence is a keyframe, and its tokens are those of its image.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from gsslam import _native
from gsslam.attention.native import attention_plan
from gsslam.errors import NativeError

PAGE_TOKENS = _native.PAGE_TOKENS


class PagedTokens:
    """Keys and values of many sequences in one allocation, page by page.

    A freed page is the next to be used, so that memory stays where it was written last. Not to be
    used by two threads at a time.
    """

    def __init__(self, pages: int, kv_heads: int, dim: int, value_dim: int) -> None:
        """Room for ``pages`` pages of PAGE_TOKENS tokens, on the CPU in float32."""
        if min(pages, kv_heads, dim, value_dim) < 1:
            raise NativeError("pages, kv_heads, dim and value_dim must be at least 1")
        self.key = torch.zeros(pages, kv_heads, PAGE_TOKENS, dim)
        self.value = torch.zeros(pages, kv_heads, PAGE_TOKENS, value_dim)
        self._free = list(reversed(range(pages)))  # the last one is used next
        self._tables: dict[Hashable, list[int]] = {}
        self._lengths: dict[Hashable, int] = {}

    @property
    def free_pages(self) -> int:
        """Pages that no sequence holds."""
        return len(self._free)

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The sequences, oldest first."""
        return tuple(self._tables)

    def length(self, name: Hashable) -> int:
        """Return the number of tokens of a sequence, 0 where there is none of that name."""
        return self._lengths.get(name, 0)

    def append(self, name: Hashable, key: torch.Tensor, value: torch.Tensor) -> None:
        """Add tokens (kv_heads, tokens, channels) to a sequence, which begins with its first.

        Raises NativeError, with nothing changed, where shapes do not fit or pages run out.
        """
        self._check(key, value)
        start, count = self.length(name), key.shape[1]
        table = self._tables.get(name, [])
        needed = -(-(start + count) // PAGE_TOKENS) - len(table)
        if needed > len(self._free):
            raise NativeError(
                f"the paged store is full: {needed} pages needed, {len(self._free)} free; "
                "remove sequences or make it with more pages"
            )
        table = table + [self._free.pop() for _ in range(needed)]
        self._tables[name], self._lengths[name] = table, start + count
        done = 0
        while done < count:
            page, slot = divmod(start + done, PAGE_TOKENS)
            size = min(PAGE_TOKENS - slot, count - done)
            self.key[table[page], :, slot : slot + size] = key[:, done : done + size]
            self.value[table[page], :, slot : slot + size] = value[:, done : done + size]
            done += size

    def truncate(self, name: Hashable, length: int) -> None:
        """Keep the first tokens of a sequence and free the pages behind them."""
        if not 0 <= length <= self.length(name):
            raise NativeError(f"cannot keep {length} of the {self.length(name)} tokens of {name!r}")
        if name not in self._tables:
            return
        table = self._tables[name]
        while len(table) * PAGE_TOKENS >= length + PAGE_TOKENS:
            self._free.append(table.pop())
        self._lengths[name] = length

    def remove(self, name: Hashable) -> None:
        """Free a sequence's pages; raises NativeError where there is none of that name."""
        if name not in self._tables:
            raise NativeError(f"the paged store has no sequence {name!r}")
        self.truncate(name, 0)
        del self._tables[name], self._lengths[name]

    def tokens(self, name: Hashable) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a sequence's keys and values (kv_heads, tokens, channels), copied together."""
        length, table = self.length(name), self._tables.get(name, [])
        parts = []
        for pages in (self.key, self.value):
            together = pages[table].transpose(0, 1).flatten(1, 2)
            parts.append(together[:, :length].contiguous())
        return parts[0], parts[1]

    def attention(
        self, query: torch.Tensor, names: Sequence[Hashable], scale: float | None = None
    ) -> torch.Tensor:
        """Let queries (B, H, L, D) attend to B sequences where they lie; returns (B, H, L, E)."""
        return self.attention_with_lse(query, names, scale)[0]

    def attention_with_lse(
        self, query: torch.Tensor, names: Sequence[Hashable], scale: float | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same and the log of the softmax's denominators (B, H, L).

        A sequence without tokens gives zeros, and -inf. Not differentiable.
        """
        batch, heads, queries, dim = query.shape
        kv_heads = self.key.shape[1]
        if batch != len(names) or heads % kv_heads or dim != self.key.shape[3]:
            raise NativeError(
                f"query {tuple(query.shape)} must have {len(names)} batch items, a multiple of "
                f"{kv_heads} heads and {self.key.shape[3]} channels"
            )
        table, lengths = self._block_table(names)
        output = query.new_empty((batch, heads, queries, self.value.shape[3]))
        log_sum_exp = query.new_empty((batch, heads, queries))
        attention_plan(torch.device("cpu")).call(
            "forward_paged",
            key_lengths=lengths,
            scale=dim**-0.5 if scale is None else scale,
            query=query.contiguous(),
            key=self.key,
            value=self.value,
            table=table,
            output=output,
            log_sum_exp=log_sum_exp,
        )
        return output, log_sum_exp

    def _block_table(self, names: Sequence[Hashable]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return page numbers (B, most pages) and lengths (B), int32."""
        tables = [self._tables.get(name, []) for name in names]
        width = max([1, *map(len, tables)])
        rows = [table + [0] * (width - len(table)) for table in tables]
        lengths = [self.length(name) for name in names]
        return torch.tensor(rows, dtype=torch.int32).reshape(-1, width), torch.tensor(
            lengths, dtype=torch.int32
        )

    def _check(self, key: torch.Tensor, value: torch.Tensor) -> None:
        kv_heads = self.key.shape[1]
        for name, tensor, pages in (("key", key, self.key), ("value", value, self.value)):
            expected = (kv_heads, key.shape[1] if key.dim() == 3 else -1, pages.shape[3])
            if tuple(tensor.shape) != expected or tensor.dtype != torch.float32:
                raise NativeError(
                    f"{name} must be float32 ({kv_heads}, tokens, {pages.shape[3]}), as many as "
                    f"of key; got {tensor.dtype} {tuple(tensor.shape)}"
                )
