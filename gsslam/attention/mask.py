"""Which keys a query sees: causal, a sliding window, padding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gsslam.errors import NativeError


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """Query i stands at key position i + ``offset`` and sees a range of keys around it.

    ``left`` and ``right`` are the keys that it sees before and after that position, all of them
    where None; ``key_lengths`` (batch), int32, says how many keys of every batch item count. A
    query that sees no key gets zeros. Raises NativeError for negative limits.
    """

    left: int | None = None
    right: int | None = None
    offset: int = 0
    key_lengths: torch.Tensor | None = None

    def __post_init__(self) -> None:
        for name, limit in (("left", self.left), ("right", self.right)):
            if limit is not None and limit < 0:
                raise NativeError(f"{name} must be None or at least 0, not {limit}")

    @staticmethod
    def causal(offset: int = 0, window: int | None = None) -> AttentionMask:
        """No key after the query's position; with ``window``, only that many up to it."""
        return AttentionMask(None if window is None else window - 1, 0, offset)

    @staticmethod
    def padding(key_lengths: torch.Tensor) -> AttentionMask:
        """Only the first keys of every batch item."""
        return AttentionMask(key_lengths=key_lengths)

    @property
    def limits(self) -> tuple[int, int, int]:
        """Left, right and offset as the kernels take them, -1 for no limit."""
        return (
            -1 if self.left is None else self.left,
            -1 if self.right is None else self.right,
            self.offset,
        )

    def visible(self, batch: int, queries: int, keys: int, device: torch.device) -> torch.Tensor:
        """Return a boolean (batch, 1, queries, keys): whether the query sees the key."""
        key = torch.arange(keys, device=device)
        position = torch.arange(queries, device=device)[:, None] + self.offset
        seen = torch.ones(batch, 1, queries, keys, dtype=torch.bool, device=device)
        if self.left is not None:
            seen &= key >= position - self.left
        if self.right is not None:
            seen &= key <= position + self.right
        if self.key_lengths is not None:
            seen &= key < self.key_lengths.to(device)[:, None, None, None]
        return seen
