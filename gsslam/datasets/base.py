"""What every dataset offers."""

from __future__ import annotations

from typing import Protocol

from gsslam.camera import Camera
from gsslam.frame import Frame
from gsslam.trajectory import Trajectory


class Dataset(Protocol):
    """A sequence of RGB-D frames that can be read by index, in any order."""

    @property
    def name(self) -> str:
        """Catalogue identifier, such as ``tum/fr1_xyz``."""
        ...

    @property
    def camera(self) -> Camera:
        """The camera of every frame that this dataset delivers (after undistortion and resizing)."""
        ...

    @property
    def ground_truth(self) -> Trajectory | None:
        """Poses of the frames that have one, in frame order; None where nobody measured them."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Frame:
        """Read frame ``index``; raises BadFrameError where that frame alone is unusable."""
        ...
