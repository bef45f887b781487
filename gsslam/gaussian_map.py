"""The map: spheres in a structure of arrays of fixed capacity, and what their optimiser keeps."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam.errors import CheckpointError, ConfigError
from gsslam.memory import MemoryUse, tensor_bytes
from gsslam.observations import Observations
from gsslam.optimizer import AdamState
from gsslam.raster import constants as c
from gsslam.results import SphereState

_Arrays = TypeVar("_Arrays", AdamState, Observations)

# Spheres that a map on a GPU has room for at first; a multiple of its cache lines, but no power of
# two, by which rows would share sets of the cache.
_FIRST_ROOM = 64_000


def first_room(capacity: int, device: torch.device) -> int:
    """Return for how many of ``capacity`` spheres arrays are made at the start.

    The CPU's memory is taken page by page as it is written to, so that there it is all of them.
    """
    return capacity if device.type == "cpu" else min(capacity, _FIRST_ROOM)


def more_room(room: int, count: int, capacity: int) -> int:
    """Return ``room``, doubled until ``count`` spheres fit, but no more than ``capacity``."""
    while room < count:
        room *= 2
    return min(room, capacity)


class GaussianMap:
    """Spheres 0 .. count-1 live in the first columns; the capacity never changes.

    On a GPU the arrays have room for fewer spheres than that, and become longer when it is used up.

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
        self._capacity, self._rows = capacity, rows
        room = first_room(capacity, torch.device(device))
        # Spheres and their queries in one piece, as the rasteriser takes them together.
        self.with_queries = torch.zeros(rows + num_features, room, device=device)
        # Fused steps on a GPU do without; whoever does not makes it.
        is_cpu = self.with_queries.device.type == "cpu"
        self._gradient = torch.zeros_like(self.with_queries) if is_cpu else None
        self.adam = AdamState.zeros(rows, room, device=device)
        self.query_adam = AdamState.zeros(num_features, room, device=device)
        # How many views a query began as the mean of.
        self.query_views = torch.zeros(room if num_features else 0, dtype=torch.int32)
        self.query_views = self.query_views.to(device)
        self.observations = Observations.zeros(room, device=device)

    @property
    def capacity(self) -> int:
        """Most spheres that fit."""
        return self._capacity

    @property
    def parameters(self) -> torch.Tensor:
        """Rows x, y, z (metres), log radius, opacity logit, red, green, blue, a view (8, room)."""
        return self.with_queries[: self._rows]

    @property
    def queries(self) -> torch.Tensor:
        """What a head decodes into features, a view (D, room); zero where there is none yet."""
        return self.with_queries[self._rows :]

    @property
    def gradient_with_queries(self) -> torch.Tensor:
        """That of ``with_queries``; all zero between two steps."""
        if self._gradient is None:
            self._gradient = torch.zeros_like(self.with_queries)
        return self._gradient

    @property
    def gradient(self) -> torch.Tensor:
        """That of ``parameters``, (8, room), a view."""
        return self.gradient_with_queries[: self._rows]

    @property
    def query_gradient(self) -> torch.Tensor:
        """That of ``queries``, (D, room), a view."""
        return self.gradient_with_queries[self._rows :]

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
        ours = {str(i): tuple(array.shape[:-1]) for i, array in enumerate(self._arrays())}
        if ours != {name: array.shape[:-1] for name, array in arrays.items()}:
            raise CheckpointError("the checkpoint's map has other arrays than this version's")
        count = arrays["0"].shape[-1]
        if count > self.capacity:
            raise CheckpointError(f"{count} spheres do not fit into map.capacity {self.capacity}")
        self._make_room(count)
        for i, array in enumerate(self._arrays()):
            array[..., :count] = torch.from_numpy(arrays[str(i)]).to(array.device)
        self.count = count

    def bytes_per_sphere(self) -> int:
        """Bytes that one sphere takes in all arrays."""
        arrays = (*self._arrays(), self.gradient_with_queries)
        return sum(t.element_size() * t[..., 0].numel() for t in arrays)

    def memory(self) -> MemoryUse:
        """Return what the arrays take with room for the whole capacity."""
        seen, room = self.observations, max(self.with_queries.shape[1], 1)
        statistics = (seen.statistics, seen.score, seen.strikes, self.query_views)
        gradient = () if self._gradient is None else (self._gradient,)
        return MemoryUse(
            parameters=tensor_bytes(self.with_queries) * self.capacity // room,
            moments=tensor_bytes(*gradient, *self._moments()) * self.capacity // room,
            statistics=tensor_bytes(*statistics) * self.capacity // room,
        )

    def insert(self, parameters: torch.Tensor) -> int:
        """Append columns (8, n), without queries; returns how many fitted."""
        n = min(parameters.shape[1], self.capacity - self.count)
        self._make_room(self.count + n)
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

    def _make_room(self, count: int) -> None:
        """Make longer arrays where ``count`` spheres need them."""
        before = self.with_queries.shape[1]
        if count <= before:
            return
        room = more_room(before, count, self.capacity)
        self.with_queries = _longer(self.with_queries, room)
        self.adam, self.query_adam = (
            _longer_all(self.adam, room),
            _longer_all(self.query_adam, room),
        )
        self.observations = _longer_all(self.observations, room)
        if len(self.queries):
            self.query_views = _longer(self.query_views, room)
        self._gradient = None if self._gradient is None else _longer(self._gradient, room)
        if self.with_queries.is_cuda:
            torch.cuda.empty_cache()  # of the old ones, which torch would keep

    def _arrays(self) -> tuple[torch.Tensor, ...]:
        seen = self.observations
        judged = (seen.statistics, seen.score, seen.strikes)
        arrays = (self.parameters, *self._moments(), *judged)
        return (*arrays, self.queries, self.query_views) if len(self.queries) else arrays

    def _moments(self) -> tuple[torch.Tensor, ...]:
        states = (self.adam, self.query_adam) if len(self.queries) else (self.adam,)
        return tuple(t for s in states for t in (s.first_moment, s.second_moment, s.steps))


def _longer(array: torch.Tensor, room: int) -> torch.Tensor:
    """Return ``array`` (..., n) with zeros behind it, (..., room)."""
    longer = array.new_zeros(*array.shape[:-1], room)
    longer[..., : array.shape[-1]] = array
    return longer


def _longer_all(arrays: _Arrays, room: int) -> _Arrays:
    """Return the same of a structure of arrays."""
    longer = {f.name: _longer(getattr(arrays, f.name), room) for f in fields(arrays)}
    return type(arrays)(**longer)
