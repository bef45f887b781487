"""Runs over a small synthetic room, for tests of the whole pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gsslam import Frame, SlamConfig, open_dataset
from gsslam.config import MappingConfig
from gsslam.datasets.base import Dataset
from gsslam.run import RunOptions, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.tracking_loop import LoopOptions

CONFIG = SlamConfig(mapping=MappingConfig(first_iterations=40, iterations=8))


class Room:
    """The synthetic room, small, seen from the places of its frames ``places``.

    ``change`` may alter a frame, or raise.
    """

    name = "synthetic/room_noisy"
    ground_truth = None

    def __init__(
        self, places: Sequence[int], change: Callable[[Frame], Frame] = lambda f: f
    ) -> None:
        self._places = places
        self._room = open_dataset(self.name, resolution=(96, 72), max_frames=max(places) + 1)
        self._change = change
        self.camera = self._room.camera
        self.timestamps = np.arange(len(places)) / 30

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Frame:
        frame = self._room[self._places[index]]
        return self._change(replace(frame, index=index, timestamp=float(self.timestamps[index])))


def run(
    room: Dataset,
    out: Path,
    threads: int,
    *,
    device: str = "cpu",
    realtime: bool = False,
    trace: bool = False,
) -> RunFolder:
    loop = LoopOptions(threads=threads, realtime=realtime)
    run_dataset(room, CONFIG, out, options=RunOptions(device, loop, trace))
    return RunFolder(out)
