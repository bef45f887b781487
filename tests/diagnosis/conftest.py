from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from gsslam.camera import Camera
from gsslam.datasets import Dataset, open_dataset
from gsslam.errors import BadFrameError
from gsslam.frame import Frame
from gsslam.trajectory import Trajectory


class Recording:
    """A Dataset of frames in memory; those that are None cannot be read."""

    name = "test/recording"
    ground_truth: Trajectory | None = None

    def __init__(self, frames: Sequence[Frame | None]) -> None:
        self._frames = frames

    @property
    def camera(self) -> Camera:
        return next(frame for frame in self._frames if frame).camera

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> Frame:
        frame = self._frames[index]
        if frame is None:
            raise BadFrameError(f"image {index}.png is truncated or damaged")
        return frame


Change = Callable[[list[Frame]], "Sequence[Frame | None]"]


class Changed:
    """A Dataset with a change to each of its frames."""

    ground_truth: Trajectory | None = None

    def __init__(self, dataset: Dataset, change: Change) -> None:
        self._dataset, self._change = dataset, change
        self.name = "test/changed"
        self.camera = self[0].camera

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Frame:
        (frame,) = self._change([self._dataset[index]])
        assert frame is not None
        return frame


@pytest.fixture(scope="session")
def room_frames() -> list[Frame]:
    """Twenty frames of the room, where the camera moves fastest."""
    room = open_dataset("synthetic/room_noisy", max_frames=60)
    return [replace(room[40 + i], index=i) for i in range(20)]
