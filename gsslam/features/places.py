"""Keyframes by what their images show: tokens in the paged store, and their ranking."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import normalize

from gsslam.attention import PagedTokens
from gsslam.errors import NativeError


@dataclass(frozen=True)
class RankedKeyframe:
    """A keyframe and how alike it looks: 1 for the same image, about 0 for nothing in common."""

    name: int
    score: float


class KeyframeIndex:
    """Tokens of keyframes, found again by those of an image.

    A keyframe's score is the mean, over the image's tokens, of the soft maximum of the cosines to
    its tokens: the log-sum-exp of attention over ``sharpness``. Tokens are taken relative to the
    first keyframe's mean, without which all features of an encoder point the same way. Not to be
    used by two threads at a time.
    """

    def __init__(self, channels: int, pages: int = 1024, sharpness: float = 40.0) -> None:
        """Room for ``pages`` pages of 64 tokens."""
        self._store = PagedTokens(pages, 1, channels, 1)
        self._sharpness = sharpness
        self._mean: torch.Tensor | None = None

    @property
    def names(self) -> tuple[int, ...]:
        """The keyframes, oldest first."""
        return tuple(name for name in self._store.names if isinstance(name, int))

    def add(self, name: int, features: torch.Tensor) -> None:
        """Add a keyframe's features (C, h, w); raises NativeError where the store is full."""
        if name in self._store.names:
            raise NativeError(f"keyframe {name} is in the index already; remove it first")
        if self._mean is None:
            self._mean = features.flatten(1).mean(1)
        tokens = self._tokens(features)
        self._store.append(name, tokens[None], torch.ones(1, len(tokens), 1))

    def remove(self, name: int) -> None:
        """Forget a keyframe; raises NativeError where there is none of that name."""
        self._store.remove(name)

    def rank(self, features: torch.Tensor, count: int = 5) -> list[RankedKeyframe]:
        """Return the ``count`` keyframes most like an image's features (C, h, w), best first."""
        names = self.names
        if not names:
            return []
        tokens = self._tokens(features)
        scores = torch.cat(
            [self._scores(tokens, names[i : i + 32]) for i in range(0, len(names), 32)]
        )
        order = scores.sort(descending=True, stable=True).indices[:count]
        return [RankedKeyframe(names[int(i)], float(scores[i])) for i in order]

    def _tokens(self, features: torch.Tensor) -> torch.Tensor:
        """Return unit tokens (N, C) relative to the mean."""
        if features.dim() != 3 or self._mean is None or len(features) != len(self._mean):
            raise NativeError(f"features must be (C, h, w) like the first ones: {features.shape}")
        flat = features.detach().float().cpu().flatten(1)
        return normalize((flat - self._mean[:, None]).mT, dim=1)

    def _scores(self, tokens: torch.Tensor, names: tuple[int, ...]) -> torch.Tensor:
        query = tokens.expand(len(names), 1, *tokens.shape)
        _, lse = self._store.attention_with_lse(query, names, self._sharpness)
        return lse.mean((1, 2)) / self._sharpness
