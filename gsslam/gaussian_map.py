"""The map: spheres in a structure of arrays of fixed capacity, and what their optimiser keeps."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam.errors import CheckpointError, ConfigError
from gsslam.memory import MemoryUse, tensor_bytes
from gsslam.observations import Observations
from gsslam.optimizer import AdamState
from gsslam.raster import constants as c
from gsslam.results import SphereState


class GaussianMap:
    """Spheres 0 .. count-1 live in the first columns; the capacity never changes.

    Removal moves the last spheres into the holes, so that live spheres stay contiguous and slots
    are used again.
    """

    def __init__(
        self,
        capacity: int,
        num_features: int = 0,
        device: torch.device | str = "cpu",
        *,
        rows: int = c.ROW_FEATURE,
    ) -> None:
        """``rows`` are those of a primitive's own parameters, more than 8 for another than ours."""
        self.count = 0
        # Spheres and their queries in one piece, as the rasteriser takes them together.
        self.with_queries = torch.zeros(rows + num_features, capacity, device=device)
        # Fused steps on a GPU do without; whoever does not makes it.
        is_cpu = self.with_queries.device.type == "cpu"
        self._gradient = torch.zeros_like(self.with_queries) if is_cpu else None
        # Rows: x, y, z (metres), log radius, opacity logit, red, green, blue.
        self.parameters = self.with_queries[:rows]
        self.adam = AdamState.zeros(rows, capacity, device=device)
        # Rows: what a head decodes into features; all zero where a sphere has none yet.
        self.queries = self.with_queries[rows:]
        self.query_adam = AdamState.zeros(num_features, capacity, device=device)
        # How many views a query began as the mean of.
        self.query_views = torch.zeros(capacity if num_features else 0, dtype=torch.int32)
        self.query_views = self.query_views.to(device)
        self.observations = Observations.zeros(capacity, device=device)

    @property
    def capacity(self) -> int:
        """Most spheres that fit."""
        return self.parameters.shape[1]

    @property
    def gradient_with_queries(self) -> torch.Tensor:
        """That of ``with_queries``; all zero between two steps."""
        if self._gradient is None:
            self._gradient = torch.zeros_like(self.with_queries)
        return self._gradient

    @property
    def gradient(self) -> torch.Tensor:
        """That of ``parameters``, (8, capacity), a view."""
        return self.gradient_with_queries[: len(self.parameters)]

    @property
    def query_gradient(self) -> torch.Tensor:
        """That of ``queries``, (D, capacity), a view."""
        return self.gradient_with_queries[len(self.parameters) :]

    @property
    def live(self) -> torch.Tensor:
        """Parameters of the live spheres, (8, count), a view."""
        return self.parameters[:, : self.count]

    @property
    def live_queries(self) -> torch.Tensor:
        """Queries of the live spheres, (D, count), a view."""
        return self.queries[:, : self.count]

    def state(self) -> SphereState:
        """Return a copy of the live spheres, without features."""
        live = self.live.cpu().numpy()
        return SphereState(
            xyz=live[c.ROW_XYZ].T.copy(),
            log_radius=live[c.ROW_LOG_RADIUS].copy(),
            opacity_logit=live[c.ROW_OPACITY_LOGIT].copy(),
            rgb=live[c.ROW_RGB].T.copy(),
        )

    def load(self, state: SphereState) -> None:
        """Replace all spheres; raises ConfigError if they do not fit into the capacity."""
        parameters = torch.from_numpy(state.columns())
        if parameters.shape[1] > self.capacity:
            raise ConfigError(
                f"{parameters.shape[1]} spheres do not fit into map.capacity {self.capacity}"
            )
        self.reset(parameters.to(self.parameters.device))

    def reset(self, parameters: torch.Tensor, queries: torch.Tensor | None = None) -> None:
        """Replace all spheres by the columns (8, n), as if they were new.

        ``queries`` (D, n) are theirs, none where None.
        """
        self.count = 0
        if self._gradient is not None:
            self._gradient.zero_()  # a step that failed may have left half of one
        self.insert(parameters)
        if queries is not None:
            self.queries[:, : self.count] = queries[:, : self.count]

    def forget_queries(self) -> None:
        """Make all spheres such as have no query yet."""
        moments = self.query_adam.first_moment, self.query_adam.second_moment
        for array in (self.queries, self.query_views, *moments, self.query_adam.steps):
            array.zero_()

    def dump(self) -> dict[str, NDArray[np.generic]]:
        """Return all that is kept of the live spheres, as arrays (..., count)."""
        return {
            str(i): array[..., : self.count].cpu().numpy() for i, array in enumerate(self._arrays())
        }

    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Take over what ``dump`` returned; raises CheckpointError where it does not fit."""
        ours = self._arrays()
        shapes = {name: array.shape[:-1] for name, array in arrays.items()}
        if shapes != {str(i): tuple(array.shape[:-1]) for i, array in enumerate(ours)}:
            raise CheckpointError("the checkpoint's map has other arrays than this version's")
        count = arrays["0"].shape[-1]
        if count > self.capacity:
            raise CheckpointError(f"{count} spheres do not fit into map.capacity {self.capacity}")
        for i, array in enumerate(ours):
            array[..., :count] = torch.from_numpy(arrays[str(i)]).to(array.device)
        self.count = count

    def bytes_per_sphere(self) -> int:
        """Bytes that one sphere takes in all arrays."""
        arrays = (*self._arrays(), self.gradient_with_queries)
        return sum(t.element_size() * t[..., 0].numel() for t in arrays)

    def memory(self) -> MemoryUse:
        """Return what the arrays take."""
        seen = self.observations
        gradient = () if self._gradient is None else (self._gradient,)
        return MemoryUse(
            parameters=tensor_bytes(self.with_queries),
            moments=tensor_bytes(*gradient, *self._moments()),
            statistics=tensor_bytes(*(seen.statistics, seen.score, seen.strikes, self.query_views)),
        )

    def insert(self, parameters: torch.Tensor) -> int:
        """Append columns (8, n), without queries; returns how many fitted."""
        n = min(parameters.shape[1], self.capacity - self.count)
        new = slice(self.count, self.count + n)
        for array in self._arrays():
            array[..., new] = 0
        self.parameters[:, new] = parameters[:, :n]
        self.count += n
        return n

    def remove(self, doomed: torch.Tensor) -> int:
        """Remove the live spheres where ``doomed`` (count,) is true; returns their number."""
        kept = self.count - int(doomed.sum())
        holes = doomed[:kept].nonzero()[:, 0]
        movers = (~doomed[kept:]).nonzero()[:, 0] + kept
        for array in self._arrays():
            array[..., holes] = array[..., movers]
        removed = self.count - kept
        self.count = kept
        return removed

    def _arrays(self) -> tuple[torch.Tensor, ...]:
        seen = self.observations
        judged = (seen.statistics, seen.score, seen.strikes)
        arrays = (self.parameters, *self._moments(), *judged)
        return (*arrays, self.queries, self.query_views) if len(self.queries) else arrays

    def _moments(self) -> tuple[torch.Tensor, ...]:
        states = (self.adam, self.query_adam) if len(self.queries) else (self.adam,)
        return tuple(t for s in states for t in (s.first_moment, s.second_moment, s.steps))
