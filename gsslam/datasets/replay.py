"""A live camera that plays a recorded sequence at the pace at which it was taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

from gsslam.camera import Camera
from gsslam.datasets.base import Dataset
from gsslam.datasets.sequence import RecordedSequence
from gsslam.datasets.tum_writer import DEPTH_SCALE
from gsslam.errors import BadFrameError
from gsslam.frame import Frame
from gsslam.sensor_clock import SensorClock


class ReplayCamera:
    """Delivers each frame when its time has come, and drops those for which nobody had time."""

    def __init__(self, dataset: Dataset) -> None:
        """Play ``dataset`` from its beginning, once ``frames`` is called."""
        self._dataset = dataset
        self._stopped = threading.Event()
        # Frames that came while nobody had time for them, or that could not be read.
        self.dropped = 0

    @property
    def name(self) -> str:
        """The dataset's name behind ``live/``."""
        return f"live/{self._dataset.name}"

    @property
    def camera(self) -> Camera:
        """The camera of every frame."""
        return self._dataset.camera

    @property
    def depth_scale(self) -> float:
        """Value at one metre of the dataset's depth images; TUM's where they have none."""
        scale = self._dataset.depth_scale if isinstance(self._dataset, RecordedSequence) else 1.0
        return scale if scale > 1 else DEPTH_SCALE

    def frames(self) -> Iterator[Frame]:
        """Yield the newest frame whenever one is asked for and due, until the sequence ends."""
        clock = SensorClock(self._dataset.timestamps)
        delivered = index = 0
        while index < len(self._dataset):
            newest = clock.newest(index)
            if self._stopped.is_set():
                return
            self.dropped += newest - index
            index = newest + 1
            try:
                frame = self._dataset[newest]
            except BadFrameError:
                self.dropped += 1
                continue
            yield replace(frame, index=delivered)
            delivered += 1

    def stop(self) -> None:
        """End ``frames``."""
        self._stopped.set()
