"""Cluster centres of a stream of vectors."""

from __future__ import annotations

import numpy as np
import torch

from gsslam.errors import NativeError
from gsslam.slam_state import Arrays


class StreamingKMeans:
    """Spherical k-means, batch by batch.

    Sculley, "Web-scale k-means clustering" (2010), algorithm 1.
    Vectors are compared by the cosine of their angle. A centre is the mean of all vectors that it
    was nearest to when they came; one that no vector of ``patience`` batches was nearest to moves
    to the vector that is least explained. The same vectors and seed give the same centres.
    """

    def __init__(
        self,
        count: int,
        channels: int,
        *,
        patience: int = 4,
        seed: int = 0,
        most_new: int | None = None,
    ) -> None:
        """``count`` centres of ``channels`` values.

        A batch makes at most ``most_new`` of them, so that later ones have their share.
        """
        most_new = count if most_new is None else most_new
        if min(count, channels, patience, most_new) < 1:
            raise NativeError("count, channels, patience and most_new must be at least 1")
        self.patience, self._most_new = patience, most_new
        self.centres = torch.zeros(count, channels)
        self.weights = torch.zeros(count)  # vectors that a centre is the mean of
        self._idle = torch.zeros(count, dtype=torch.int64)
        self._made = 0
        self._generator = torch.Generator().manual_seed(seed)

    @property
    def ready(self) -> bool:
        """Whether every centre has had a vector."""
        return self._made == len(self.centres)

    @property
    def made(self) -> torch.Tensor:
        """The centres that have had a vector, (made, channels), a view."""
        return self.centres[: self._made]

    def update(self, vectors: torch.Tensor) -> None:
        """Take a batch (N, channels) of float32 vectors into account."""
        if vectors.dim() != 2 or vectors.shape[1] != self.centres.shape[1]:
            raise NativeError(
                f"vectors must be (N, {self.centres.shape[1]}); got {tuple(vectors.shape)}"
            )
        vectors = vectors.detach().float()
        vectors = vectors[vectors.isfinite().all(1) & (vectors.norm(dim=1) > 0)]
        if self._made < len(self.centres):
            vectors = self._begin(vectors)
        if len(vectors):
            self._move(vectors)

    def state(self) -> Arrays:
        """Return all that the next batch meets."""
        state = {name: tensor.numpy().copy() for name, tensor in self._tensors().items()}
        return {**state, "made": np.array(self._made)}

    def restore(self, state: Arrays) -> None:
        """Take over what ``state`` returned."""
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(state[name]))
        self._generator.set_state(torch.from_numpy(state["generator"]))
        self._made = int(state["made"])

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {
            "centres": self.centres,
            "weights": self.weights,
            "idle": self._idle,
            "generator": self._generator.get_state(),
        }

    def _begin(self, vectors: torch.Tensor) -> torch.Tensor:
        """Make centres of randomly chosen vectors; return the others."""
        order = torch.randperm(len(vectors), generator=self._generator)
        taken = order[: min(len(self.centres) - self._made, self._most_new)]
        end = self._made + len(taken)
        self.centres[self._made : end] = vectors[taken]
        self.weights[self._made : end] = 1
        self._made = end
        return vectors[order[len(taken) :]]

    def _move(self, vectors: torch.Tensor) -> None:
        cosines = _unit(vectors) @ _unit(self.centres[: self._made]).mT
        best = cosines.max(1)
        counts = torch.bincount(best.indices, minlength=len(self.centres)).float()
        sums = torch.zeros_like(self.centres).index_add_(0, best.indices, vectors)
        self.weights += counts
        seen = counts > 0
        step = (sums[seen] - counts[seen, None] * self.centres[seen]) / self.weights[seen, None]
        self.centres[seen] += step
        self._idle = torch.where(seen, 0, self._idle + 1)
        idle = (self._idle[: self._made] >= self.patience).nonzero()[:, 0]
        worst = best.values.sort(stable=True).indices[: len(idle)]
        idle = idle[: len(worst)]
        self.centres[idle] = vectors[worst]
        self.weights[idle] = 1
        self._idle[idle] = 0


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)
