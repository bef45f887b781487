"""A sequence played forth and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gsslam.datasets import open_dataset
from scripts import long_run


def test_frames_come_forth_and_back_while_time_goes_on() -> None:
    assert [long_run.played_index(i, 4) for i in range(10)] == [0, 1, 2, 3, 2, 1, 0, 1, 2, 3]
    assert [long_run.played_index(i, 1) for i in range(3)] == [0, 0, 0]
    room = open_dataset("synthetic/room", None, resolution=(48, 36), max_frames=3)
    played = long_run.ForthAndBack(room, 8)
    frames = [played[i] for i in range(len(played))]
    assert [frame.index for frame in frames] == list(range(8))
    assert np.diff([frame.timestamp for frame in frames]).min() > 0
    assert np.array_equal(frames[4].rgb, frames[0].rgb)
    assert not np.array_equal(frames[4].rgb, frames[2].rgb)


def test_the_report_holds_the_run_to_its_budget(tmp_path: Path) -> None:
    options = long_run.Options(
        sequence=tmp_path,
        out=tmp_path / "out",
        dataset="synthetic/room",
        preset="synthetic",
        resolution="48x36",
        frames=30,
        part=8,
        memory_budget=6,
        warm_up=5,
    )
    long_run.run(options)
    text = long_run.report(options)
    assert text.startswith("30 frames, 0 lost; counted at most")
    assert (options.out / "long_run.png").stat().st_size > 10_000
