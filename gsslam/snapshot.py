"""What tracking sees of the map: a copy that stays as it is while mapping goes on."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gsslam.gaussian_map import GaussianMap, more_room
from gsslam.memory import MemoryUse, tensor_bytes
from gsslam.slam_state import Arrays

# Is given the map while mapping is at rest, and must copy what it keeps of it.
OnMap = Callable[[GaussianMap], None]


class MapSnapshot:
    """The second of two buffers: mapping writes the map, tracking reads this copy of it.

    The copy is renewed by the tracking thread itself, between two keyframes, when mapping is at
    rest. So neither thread ever waits for the other's buffer, and the addresses hardly ever change,
    as captured CUDA graphs want.
    """

    def __init__(self, gaussian_map: GaussianMap) -> None:
        self._with_queries = torch.zeros_like(gaussian_map.with_queries)
        self._capacity, self._rows = gaussian_map.capacity, len(gaussian_map.parameters)
        self.count = 0
        # How often the copy was renewed; it only ever increases.
        self.version = 0
        # Called by the thread that tracks, whenever it has renewed the copy.
        self.on_renewed: OnMap = lambda gaussian_map: None

    @property
    def parameters(self) -> torch.Tensor:
        """Parameters of the spheres, (8, room), a view; the first ``count`` live."""
        return self._with_queries[: self._rows]

    @property
    def live(self) -> torch.Tensor:
        """Parameters of the spheres, (8, count), a view."""
        return self.parameters[:, : self.count]

    @property
    def queries(self) -> torch.Tensor:
        """Queries of the spheres, (D, count), a view; D is 0 without learned features."""
        return self._with_queries[self._rows :, : self.count]

    def memory(self) -> MemoryUse:
        """Return what the copy takes with room for the map's whole capacity."""
        each = tensor_bytes(self._with_queries[:, 0])
        return MemoryUse(parameters=each * self._capacity)

    def state(self) -> Arrays:
        """Return the live spheres and their queries, for ``restore``."""
        return {"live": self.live.cpu().numpy(), "queries": self.queries.cpu().numpy()}

    def restore(self, arrays: Arrays, version: int) -> None:
        """Take over what ``state`` returned."""
        self.load(torch.from_numpy(arrays["live"]), torch.from_numpy(arrays["queries"]), version)

    def renew(self, gaussian_map: GaussianMap) -> None:
        """Copy the map, which nothing may change meanwhile."""
        self.load(gaussian_map.live, gaussian_map.live_queries, self.version + 1)
        self.on_renewed(gaussian_map)

    def load(self, live: torch.Tensor, queries: torch.Tensor, version: int) -> None:
        """Take over the spheres ``live`` (8, count) and ``queries`` (D, count) as ``version``."""
        self.count = live.shape[1]
        before = self._with_queries.shape[1]
        if self.count > before:
            room = more_room(before, self.count, self._capacity)
            self._with_queries = self._with_queries.new_zeros(len(self._with_queries), room)
        self.live.copy_(live)
        self.queries.copy_(queries)
        self.version = version
