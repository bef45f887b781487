"""A camera that is lost, and found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gsslam import Frame, Slam, SlamConfig, open_dataset
from gsslam.config import KeyframeConfig
from gsslam.datasets.base import Dataset
from gsslam.geometry import inverse
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.trajectory import Trajectory
from tests.small_room import CONFIG, Room, run


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


def motion_error_cm(room: Dataset, folder: RunFolder, first: int, second: int) -> float:
    """Return by how much the motion between two frames differs from the true one."""
    found = Trajectory.read(folder.trajectory).T_world_camera
    true = {index: room[index].T_world_camera for index in (first, second)}
    motions = [inverse(poses[first]) @ poses[second] for poses in (found, true)]
    return 100 * float(np.linalg.norm(motions[0][:3, 3] - motions[1][:3, 3]))
