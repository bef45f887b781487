"""What tracking sees of the map: a copy that stays as it is while mapping goes on."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gsslam.gaussian_map import GaussianMap
from gsslam.memory import MemoryUse, tensor_bytes

# Is given the map while mapping is at rest, and must copy what it keeps of it.
OnMap = Callable[[GaussianMap], None]


class MapSnapshot:
    """The second of two buffers: mapping writes the map, tracking reads this copy of it.

    The copy is renewed by the tracking thread itself, between two keyframes, when mapping is at
    rest. So neither thread ever waits for the other's buffer, and the addresses never change, as
    captured CUDA graphs want.
    """

    def __init__(self, gaussian_map: GaussianMap) -> None:
        self.parameters = torch.zeros_like(gaussian_map.parameters)
        self.count = 0
        # How often the copy was renewed; it only ever increases.
        self.version = 0
        # Called by the thread that tracks, whenever it has renewed the copy.
        self.on_renewed: OnMap = lambda gaussian_map: None

    @property
    def live(self) -> torch.Tensor:
        """Parameters of the spheres, (8 + D, count), a view."""
        return self.parameters[:, : self.count]

    def memory(self) -> MemoryUse:
        """Return what the copy takes."""
        return MemoryUse(parameters=tensor_bytes(self.parameters))

    def renew(self, gaussian_map: GaussianMap) -> None:
        """Copy the map, which nothing may change meanwhile."""
        self.load(gaussian_map.live, self.version + 1)
        self.on_renewed(gaussian_map)

    def load(self, live: torch.Tensor, version: int) -> None:
        """Take over the spheres ``live`` (8 + D, count) as version ``version``."""
        self.count = live.shape[1]
        self.live.copy_(live)
        self.version = version
