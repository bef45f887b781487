"""Watching a run while it goes on, without a say in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gsslam.config import SlamConfig
from gsslam.frame import Frame
from gsslam.results import TrackingResult

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset
    from gsslam.slam import Slam


class Observer(Protocol):
    """Is told what happens by the thread that tracks, which waits until it returns.

    So it must return soon, change nothing and raise nothing; what it keeps of a map it must copy.
    """

    def on_start(self, dataset: Dataset, config: SlamConfig, slam: Slam) -> None:
        """Be told of a run, before its first frame or after its checkpoint was read."""
        ...

    def on_frame(self, frame: Frame, result: TrackingResult) -> None:
        """Be told of a frame that went through tracking."""
        ...

    def on_end(self, slam: Slam) -> None:
        """Be told that the last frame was tracked and the map is finished."""
        ...


class Unobserved:
    """Nobody watches."""

    def on_start(self, dataset: Dataset, config: SlamConfig, slam: Slam) -> None:
        """Do nothing."""

    def on_frame(self, frame: Frame, result: TrackingResult) -> None:
        """Do nothing."""

    def on_end(self, slam: Slam) -> None:
        """Do nothing."""
