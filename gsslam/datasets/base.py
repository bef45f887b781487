"""What every dataset offers, and what can be asked of it when it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.errors import ConfigError
from gsslam.frame import Frame
from gsslam.trajectory import Trajectory


class Dataset(Protocol):
    """A sequence of RGB-D frames that can be read by index, in any order.

    Classes that derive from it can be iterated over.
    """

    @property
    def name(self) -> str:
        """Catalogue identifier, such as ``tum/fr1_xyz``."""
        ...

    @property
    def camera(self) -> Camera:
        """The camera of every frame delivered (after undistortion and resizing)."""
        ...

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """Seconds at which the frames were taken, (N,)."""
        ...

    @property
    def ground_truth(self) -> Trajectory | None:
        """Poses of the frames that have one, in frame order; None where nobody measured them."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Frame:
        """Read frame ``index``; raises BadFrameError where that frame alone is unusable."""
        ...

    def __iter__(self) -> Iterator[Frame]:
        """Read all frames in order; raises BadFrameError at the first that is unusable."""
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True)
class ReadOptions:
    """Which part of a sequence is delivered, and in which form."""

    # (width, height) in pixels; None keeps the images' own size.
    resolution: tuple[int, int] | None = None
    # At most this many frames, counted after ``stride``.
    max_frames: int | None = None
    # Every stride-th frame.
    stride: int = 1
    # Seed of whatever is random (synthetic noise).
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what selects nothing."""
        if self.stride < 1:
            raise ConfigError(f"stride {self.stride} must be at least 1")
        if self.max_frames is not None and self.max_frames < 1:
            raise ConfigError(f"max_frames {self.max_frames} must be at least 1")

    def target(self, camera: Camera) -> Camera:
        """Return ``camera`` at the asked resolution."""
        return camera.resized(*self.resolution) if self.resolution else camera
