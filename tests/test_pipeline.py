"""Tracking and mapping side by side: one result, and every kind of failure."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gsslam import Frame, Slam, SlamConfig, open_dataset
from gsslam.config import KeyframeConfig, MappingConfig
from gsslam.datasets.base import Dataset
from gsslam.errors import BadFrameError
from gsslam.geometry import inverse
from gsslam.keyframes import Keyframe
from gsslam.mapping import Mapper
from gsslam.recorder import read_flight
from gsslam.run import RunOptions, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.tracking_loop import LoopOptions
from gsslam.trajectory import Trajectory
from tests.conftest import usable_device

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


class Darkened:
    """A sequence of which some frames are black."""

    def __init__(self, sequence: Dataset, dark: range) -> None:
        self._sequence, self._dark = sequence, dark
        self.name, self.camera = sequence.name, sequence.camera
        self.ground_truth, self.timestamps = sequence.ground_truth, sequence.timestamps

    def __len__(self) -> int:
        return len(self._sequence)

    def __getitem__(self, index: int) -> Frame:
        frame = self._sequence[index]
        return black(frame) if index in self._dark else frame


def black(frame: Frame) -> Frame:
    return replace(frame, rgb=np.zeros_like(frame.rgb), depth=np.zeros_like(frame.depth))


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


def test_thirty_black_frames_are_lost_and_the_camera_is_found_again(tmp_path: Path) -> None:
    dark = range(20, 50)
    # The hand comes off the lens a little to the side of where it was put there.
    places = [*range(20), *[19] * 30, *range(12, 18)]
    room = Room(places, lambda frame: black(frame) if frame.index in dark else frame)
    folder = run(room, tmp_path / "run", threads=2)
    records = folder.read_frames()
    assert [record.index for record in records if record.status == "lost"] == list(dark)
    assert not any(record.keyframe for record in records if record.status == "lost")
    metrics = folder.read_metrics()
    assert (metrics["lost_frames"], metrics["recoveries"]) == (30, 1)
    assert "found the camera again at frame 50" in folder.log.read_text()
    assert motion_error_cm(room, folder, 19, 50) < 2


def test_black_frames_in_a_real_sequence(data_root: Path, tmp_path: Path) -> None:
    source = Source("tum/fr1_xyz", data_root / "tum_fr1_xyz", resolution=(160, 120), max_frames=70)
    room = Darkened(source.open(), range(30, 60))
    folder = run(room, tmp_path / "run", threads=2)
    statuses = [record.status for record in folder.read_frames()]
    assert statuses == ["tracked"] * 30 + ["lost"] * 30 + ["tracked"] * 10
    assert motion_error_cm(room, folder, 29, 60) < 3


def test_a_camera_that_jumps_back_is_found_at_a_keyframe(tmp_path: Path) -> None:
    # Frames 0 to 39, and then the sequence from its beginning: neither the last pose nor constant
    # velocity is anywhere near.
    room = open_dataset("synthetic/room", resolution=(96, 72), max_frames=40)
    frames = [room[index] for index in (*range(40), 0, 1, 2)]
    with Slam(SlamConfig(CONFIG.tracking, KeyframeConfig(), CONFIG.densify), room.camera) as slam:
        results = [slam.track(frame) for frame in frames]
        trajectory = slam.finish()
    assert all(result.tracked for result in results)
    back, there = trajectory.T_world_camera[40:], trajectory.T_world_camera[:3]
    moved = np.linalg.norm(trajectory.T_world_camera[39, :3, 3])
    assert moved > 0.2
    assert np.abs(back - there)[:, :3, 3].max() < 0.02


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
    # A block of torch's for the keyframes' images may be added.
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


def motion_error_cm(room: Dataset, folder: RunFolder, first: int, second: int) -> float:
    """Return by how much the motion between two frames differs from the true one."""
    found = Trajectory.read(folder.trajectory).T_world_camera
    true = {index: room[index].T_world_camera for index in (first, second)}
    motions = [inverse(poses[first]) @ poses[second] for poses in (found, true)]
    return 100 * float(np.linalg.norm(motions[0][:3, 3] - motions[1][:3, 3]))
