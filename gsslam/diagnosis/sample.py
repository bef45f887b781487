"""The few frames of a dataset that are looked at."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from gsslam.datasets.base import Dataset
from gsslam.errors import BadFrameError
from gsslam.frame import Frame

# Neighbours show order and motion; four places show whether what was found holds everywhere.
RUNS, RUN_LENGTH = 4, 5


@dataclass(frozen=True)
class Sample:
    """Runs of consecutive frames, and why others among them could not be read."""

    runs: tuple[tuple[Frame, ...], ...]
    # Reason by index.
    unreadable: dict[int, str]

    @property
    def frames(self) -> list[Frame]:
        """All frames, in order."""
        return [frame for run in self.runs for frame in run]

    @property
    def neighbours(self) -> list[tuple[Frame, Frame]]:
        """Frames that follow each other."""
        return [pair for run in self.runs for pair in itertools.pairwise(run)]


def sample_places(length: int) -> list[range]:
    """Return which of ``length`` frames are read: all of a short one, else four runs of five."""
    if length <= RUNS * RUN_LENGTH:
        return [range(length)]
    starts = [(2 * run + 1) * length // (2 * RUNS) - RUN_LENGTH // 2 for run in range(RUNS)]
    return [range(start, start + RUN_LENGTH) for start in starts]


def read_sample(dataset: Dataset) -> Sample:
    """Read the sample; frames that cannot be read are left out and named."""
    runs, unreadable = [], {}
    for place in sample_places(len(dataset)):
        run = []
        for index in place:
            try:
                run.append(dataset[index])
            except BadFrameError as error:
                unreadable[index] = str(error)
        runs.append(tuple(run))
    return Sample(tuple(runs), unreadable)
