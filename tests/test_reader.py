"""Reading ahead."""

import threading
from pathlib import Path

import numpy as np
import pytest

from gsslam import BadFrameError, Frame, open_dataset
from gsslam.reader import FrameReader
from gsslam.trace import Trace


class Sequence:
    """The synthetic room with a frame that cannot be read, which remembers who read what."""

    def __init__(self) -> None:
        self._room = open_dataset("synthetic/room", resolution=(32, 24), max_frames=8)
        self.name, self.camera, self.ground_truth = "room", self._room.camera, None
        self.readers: set[int] = set()
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self._room)

    def __getitem__(self, index: int) -> Frame:
        self.readers.add(threading.get_ident())
        self.read.append(index)
        if index == 3:
            raise BadFrameError("frame 3 is broken")
        return self._room[index]


def test_frames_come_in_order_from_other_threads_and_a_bad_one_is_passed() -> None:
    sequence = Sequence()
    with FrameReader(sequence, Trace()) as reader:
        for index in range(8):
            if index == 3:
                with pytest.raises(BadFrameError, match="frame 3"):
                    reader.read()
                continue
            frame, reading_ms = reader.read()
            assert frame.index == index
            assert np.array_equal(frame.rgb, sequence[index].rgb)
            assert reading_ms > 0
        with pytest.raises(IndexError):
            reader.read()
    assert len(sequence.readers - {threading.get_ident()}) >= 1


def test_leaving_early_reads_no_further_and_leaves_no_thread() -> None:
    sequence = Sequence()
    with FrameReader(sequence, Trace()) as reader:
        reader.read()
    assert max(sequence.read) <= 4
    assert not [t for t in threading.enumerate() if t.name.startswith("gsslam-reader")]


def test_a_real_sequence_is_the_same_read_ahead(data_root: Path) -> None:
    dataset = open_dataset(
        "tum/fr1_xyz", data_root / "tum_fr1_xyz", resolution=(160, 120), max_frames=6
    )
    with FrameReader(dataset, Trace()) as reader:
        for index in range(6):
            ahead, _ = reader.read()
            assert np.array_equal(ahead.depth, dataset[index].depth)


def test_reading_can_begin_later_and_skip_frames_with_and_without_threads() -> None:
    for own_threads in (True, False):
        with FrameReader(Sequence(), Trace(), first=4, own_threads=own_threads) as reader:
            assert reader.read()[0].index == 4
            reader.skip()
            assert reader.read()[0].index == 6
            reader.skip()
            with pytest.raises(IndexError):
                reader.read()
