"""Tracking and mapping side by side: one result, and every kind of failure."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gsslam import Frame, Slam
from gsslam.errors import BadFrameError
from gsslam.keyframes import Keyframe
from gsslam.mapping import Mapper
from gsslam.recorder import read_flight
from gsslam.run_folder import RunFolder
from tests.conftest import usable_device
from tests.small_room import CONFIG, Room, run


def results(folder: RunFolder) -> bytes:
    return folder.trajectory.read_bytes() + folder.map.read_bytes()


def no_thread_is_left() -> bool:
    return not [t for t in threading.enumerate() if t.name.startswith("gsslam")]


def delayed(monkeypatch: pytest.MonkeyPatch, seed: int) -> Callable[[Frame], Frame]:
    """Let reading, tracking and mapping take up to 20 ms longer; returns the reader's delay."""
    chance = random.Random(seed)
    track, integrate = Slam.track, Mapper.integrate

    def slow(frame: Frame) -> Frame:
        time.sleep(chance.uniform(0, 0.02))
        return frame

    def slow_track(slam: Slam, frame: Frame) -> object:
        time.sleep(chance.uniform(0, 0.02))
        return track(slam, frame)

    def slow_integrate(mapper: Mapper, keyframe: Keyframe) -> None:
        time.sleep(chance.uniform(0, 0.02))
        integrate(mapper, keyframe)
        time.sleep(chance.uniform(0, 0.02))

    monkeypatch.setattr(Slam, "track", slow_track)
    monkeypatch.setattr(Mapper, "integrate", slow_integrate)
    return slow


def test_the_same_bytes_with_one_and_two_threads_under_delays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    expected = results(run(Room(range(14)), tmp_path / "plain", threads=1, device=device))
    for number in range(6):
        with monkeypatch.context() as patch:
            room = Room(range(14), delayed(patch, seed=number))
            folder = run(room, tmp_path / str(number), threads=1 + number % 2, device=device)
        assert results(folder) == expected
    assert no_thread_is_left()


def test_the_map_is_published_a_fixed_number_of_frames_after_the_keyframe(tmp_path: Path) -> None:
    records = run(Room(range(14)), tmp_path / "run", threads=2).read_frames()
    versions = [record.map_version for record in records]
    assert versions[0] == 0  # there was no map yet
    assert versions == sorted(versions)
    keyframes = [record.index for record in records if record.keyframe]
    for version, index in enumerate(keyframes[:-1], start=1):
        following = keyframes[version]
        shown = min(index + CONFIG.mapping.publish_after, following)
        # The first map is there for the frame after it; a keyframe takes the one before along.
        shown = 1 if version == 1 else shown
        first = next(record.index for record in records if record.map_version == version)
        assert first == (shown if records[shown].map_version == version else shown + 1)


def test_tracking_and_mapping_overlap_and_the_trace_shows_it(tmp_path: Path) -> None:
    def spans(threads: int) -> dict[str, list[dict[str, float]]]:
        folder = run(Room(range(14)), tmp_path / str(threads), threads=threads, trace=True)
        events = json.loads(folder.trace.read_text())["traceEvents"]
        return {
            name: [event for event in events if event["ph"] == "X" and event["name"] == name]
            for name in ("reading", "tracking", "mapping")
        }

    def overlaps(a: dict[str, float], b: dict[str, float]) -> bool:
        return a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]

    two = spans(2)
    assert len(two["reading"]) == len(two["tracking"]) == 14
    assert len({span["tid"] for kind in two.values() for span in kind}) >= 3
    assert any(overlaps(a, b) for a in two["tracking"] for b in two["mapping"])
    one = spans(1)
    assert len({span["tid"] for kind in one.values() for span in kind}) == 1
    assert not any(overlaps(a, b) for a in one["tracking"] for b in one["mapping"])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_mapping_thread_that_raises_stops_the_run_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    integrate = Mapper.integrate

    def fail(mapper: Mapper, keyframe: Keyframe) -> None:
        integrate(mapper, keyframe)
        if len(mapper.keyframes) == 3:
            mapper.map.count //= 2  # half of a change
            raise RuntimeError("the mapper broke")

    monkeypatch.setattr(Mapper, "integrate", fail)
    with pytest.raises(RuntimeError, match="the mapper broke"):
        run(Room(range(14)), tmp_path / "run", threads)
    folder = RunFolder(tmp_path / "run")
    assert no_thread_is_left()
    assert folder.read_metrics()["failure"] == "the mapper broke"
    assert folder.log.read_text().count("stopped at frame") == 1
    records = folder.read_frames()
    third = [record.index for record in records if record.keyframe][2]
    # The failure comes to light where the result would have been seen.
    assert third < len(records) <= third + CONFIG.mapping.publish_after + 1
    # The last operations of both threads are there, with what they worked on.
    flight = read_flight(folder.flight)
    mapping = [entry for entry in flight if entry["step"] == third and entry["map_version"] == 3]
    assert {entry["operation"] for entry in mapping} >= {"Rasterizer.backward", "Adam.step"}
    assert any(entry["step"] == third - 1 for entry in flight)
    assert {entry["thread"] for entry in flight} == (
        {"MainThread", "gsslam-mapping_0"} if threads == 2 else {"MainThread"}
    )
    # What is saved is the map as tracking last saw it.
    assert folder.read_metrics()["spheres"] == records[-1].spheres > 0


def test_an_unreadable_frame_in_the_middle_is_passed_over(tmp_path: Path) -> None:
    def broken(frame: Frame) -> Frame:
        if frame.index == 6:
            raise BadFrameError("rgb/6.png is truncated")
        return frame

    folder = run(Room(range(14), broken), tmp_path / "run", threads=2)
    statuses = [record.status for record in folder.read_frames()]
    assert statuses == ["tracked"] * 6 + ["skipped"] + ["tracked"] * 7
    assert "skipped frame 6: rgb/6.png is truncated" in folder.log.read_text()


@pytest.mark.gpu
def test_nothing_is_allocated_on_the_gpu_once_all_has_been_seen() -> None:
    usable_device("cuda")
    room = Room(range(60))
    with Slam(CONFIG, room.camera, "cuda") as slam:
        free = []
        for index in range(60):
            slam.track(room[index])
            if index in (29, 59):
                assert slam.map.count > 0  # waits for mapping
                free.append(torch.cuda.mem_get_info()[0])
    # Lists may have become a little longer.
    assert free[0] - free[1] <= 2 * 2**20


def test_real_time_drops_what_it_has_no_time_for_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = Slam.track

    def slow_track(slam: Slam, frame: Frame) -> object:
        time.sleep(0.1)  # three frames of the sensor
        return track(slam, frame)

    monkeypatch.setattr(Slam, "track", slow_track)
    folder = run(Room(range(24)), tmp_path / "run", threads=2, realtime=True)
    records = folder.read_frames()
    assert [record.index for record in records] == list(range(24))
    dropped = [record for record in records if record.status == "dropped"]
    assert len(dropped) >= 8
    metrics = folder.read_metrics()
    assert metrics["dropped_frames"] == len(dropped)
    assert metrics["frames"] == 24 - len(dropped)
    assert metrics["realtime"] is True
