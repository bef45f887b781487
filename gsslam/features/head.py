"""The dictionary that turns small queries into the features of an image encoder."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import cosine_similarity, normalize

from gsslam.attention import attention
from gsslam.errors import NativeError


class FeatureHead(nn.Module):
    """softmax(Q W Kᵀ) V: features (..., C) of queries (..., D), by attention to A atoms.

    V (A, C) are the atoms themselves and K (A, D) their keys, both learned like W (D, D). It begins
    with the principal directions of the atoms as keys, so that a feature's own projection on them
    (``encode``) is a query that finds the atoms near it.
    """

    def __init__(
        self,
        atoms: torch.Tensor,
        dim: int = 32,
        *,
        capacity: int | None = None,
        sharpness: float = 16.0,
    ) -> None:
        """``atoms`` (A, C), A > D; ``sharpness`` is the length of the queries to begin with.

        ``capacity`` is how many atoms there may be in the end, none to come where None.
        """
        super().__init__()
        count, channels = atoms.shape
        if not dim < min(count, channels + 1):
            raise NativeError(
                f"{dim} channels need more than {dim} atoms and as many values of each; "
                f"got {count} of {channels}"
            )
        atoms = atoms.detach().float()
        self.sharpness = sharpness
        self.register_buffer("mean", atoms.mean(0))
        self.register_buffer("directions", _principal_directions(atoms, dim))
        self.register_buffer("count", torch.tensor(0))
        capacity = max(capacity or 0, count)
        self.value = nn.Parameter(torch.zeros(capacity, channels))
        self.key = nn.Parameter(torch.zeros(capacity, dim))
        self.weight = nn.Parameter(torch.eye(dim))
        self.grow(atoms)

    @staticmethod
    def of_state(state: Mapping[str, torch.Tensor]) -> FeatureHead:
        """Return the head that has this ``state_dict``."""
        head = FeatureHead(state["value"], state["key"].shape[1])  # all of it is replaced
        head.load_state_dict(state)
        return head

    mean: torch.Tensor
    directions: torch.Tensor
    count: torch.Tensor

    @property
    def dim(self) -> int:
        """Channels of a query."""
        return self.weight.shape[0]

    @property
    def channels(self) -> int:
        """Channels of a feature."""
        return self.value.shape[1]

    def grow(self, atoms: torch.Tensor) -> None:
        """Add atoms (n, C), with their projections as keys."""
        atoms = atoms.detach().to(self.value)
        start = int(self.count)
        if start + len(atoms) > len(self.value):
            raise NativeError(f"the head has room for {len(self.value) - start} atoms")
        with torch.no_grad():
            self.value[start : start + len(atoms)] = atoms
            self.key[start : start + len(atoms)] = self._project(atoms)
        self.count += len(atoms)

    def encode(self, features: torch.Tensor) -> torch.Tensor:
        """Return queries (..., D) to begin with for features (..., C)."""
        return self.sharpness * self._project(features)

    def forward(self, queries: torch.Tensor) -> torch.Tensor:
        """Decode float32 queries (..., D); differentiable. A GPU attends in float16."""
        flat = (queries @ self.weight).reshape(1, 1, -1, self.dim)
        key, value = self.key[: int(self.count)], self.value[: int(self.count)]
        tokens = (flat, key[None, None], value[None, None])
        if flat.is_cuda:
            tokens = (flat.half(), tokens[1].half(), tokens[2].half())
        features = attention(*tokens, scale=1.0).float()
        return features.view(*queries.shape[:-1], self.channels)

    def decode_planes(self, planes: torch.Tensor) -> torch.Tensor:
        """Decode rendered query planes (D, H, W) into features (C, H, W)."""
        decoded: torch.Tensor = self(planes.permute(1, 2, 0))
        return decoded.permute(2, 0, 1)

    def _project(self, features: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = normalize((features - self.mean) @ self.directions, dim=-1)
        return projected


def _principal_directions(atoms: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the (C, D) directions of the greatest variance, signs fixed."""
    centred = (atoms - atoms.mean(0)).double()
    vectors: torch.Tensor = torch.linalg.eigh(centred.mT @ centred).eigenvectors[:, -dim:].flip(1)
    largest = vectors.abs().argmax(0, keepdim=True)
    return (vectors * vectors.gather(0, largest).sign()).float()


def distillation_loss(
    decoded: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of 1 − cosine plus the mean L1, over features (..., C).

    ``weight`` (...) counts some features more than others, or not at all.
    """
    loss: torch.Tensor = (
        1 - cosine_similarity(decoded, target, dim=-1) + (decoded - target).abs().mean(-1)
    )
    if weight is None:
        return loss.mean()
    return (loss * weight).sum() / weight.sum().clamp(min=1e-12)
