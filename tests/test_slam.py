"""The whole of SLAM on the synthetic room, where every answer is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from gsslam import Frame, Slam, SlamConfig, TrackingError, TrackingResult, _native, open_dataset
from gsslam.config import MappingConfig
from gsslam.errors import ConfigError
from gsslam.evaluation.trajectory import aligned
from gsslam.trajectory import Trajectory

# Fewer steps than by default, so that the tests are quick.
CONFIG = SlamConfig(mapping=MappingConfig(first_iterations=60, iterations=15))


@dataclass
class Outcome:
    slam: Slam
    results: list[TrackingResult]
    trajectory: Trajectory

    def bytes(self) -> bytes:
        return self.trajectory.T_world_camera.tobytes() + self.slam.map.live.numpy().tobytes()


def frames(count: int, name: str = "synthetic/room") -> list[Frame]:
    dataset = open_dataset(name, resolution=(160, 120), max_frames=count)
    return [dataset[index] for index in range(count)]


def run(sequence: list[Frame], config: SlamConfig = CONFIG) -> Outcome:
    slam = Slam(config, sequence[0].camera)
    results = [slam.track(frame) for frame in sequence]
    return Outcome(slam, results, slam.finish())


@pytest.fixture(scope="module")
def room() -> list[Frame]:
    return frames(16)


@pytest.fixture(scope="module")
def outcome(room: list[Frame]) -> Outcome:
    return run(room)


def test_every_frame_is_tracked_to_a_few_millimetres(room: list[Frame], outcome: Outcome) -> None:
    assert all(result.tracked and not result.reason for result in outcome.results)
    truth = np.stack([frame.T_world_camera for frame in room])
    ours = aligned(outcome.trajectory.T_world_camera, truth)
    errors = np.linalg.norm((ours - truth)[:, :3, 3], axis=1)
    moved = np.linalg.norm(truth[-1, :3, 3] - truth[0, :3, 3])
    assert moved > 0.05
    assert np.sqrt(np.mean(errors**2)) < 0.003


def test_the_first_camera_is_the_world(outcome: Outcome) -> None:
    assert np.array_equal(outcome.trajectory.T_world_camera[0], np.eye(4))
    assert outcome.results[0].is_keyframe


def test_results_say_what_happened(room: list[Frame], outcome: Outcome) -> None:
    assert [result.index for result in outcome.results] == list(range(16))
    keyframes = [result.index for result in outcome.results if result.is_keyframe]
    assert [keyframe.index for keyframe in outcome.slam.keyframes] == keyframes
    assert 7 not in keyframes
    assert 15 not in keyframes
    for result in outcome.results[1:]:
        assert result.iterations >= 1
        assert 0.5 < result.valid_share <= 1
        assert 0 < result.conditioning <= 1
        assert result.colour_residual < 0.1
        assert result.depth_residual < 0.2
        assert result.tracking_ms > 0
    stamps = [frame.timestamp for frame in room]
    assert outcome.trajectory.timestamps == pytest.approx(stamps)


def test_the_map_looks_like_the_frames(room: list[Frame], outcome: Outcome) -> None:
    # Frame 7 is held out; later ones look past the edge of what the last keyframe showed.
    for index in (0, 7, 11):
        view = outcome.slam.render(outcome.trajectory.T_world_camera[index])
        frame = room[index]
        error = view.colour.clip(0, 1) - frame.rgb / np.float32(255)
        assert -10 * np.log10(np.mean(error**2)) > 28
        both = (view.depth > 0) & (frame.depth > 0)
        assert both.mean() > 0.95
        assert np.median(np.abs(view.depth - frame.depth)[both]) < 0.02


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bytes_again_with_any_number_of_threads(threads: int) -> None:
    sequence = frames(9, "synthetic/room_noisy")
    _native.set_thread_count(2)
    expected = run(sequence).bytes()
    _native.set_thread_count(threads)
    assert run(sequence).bytes() == expected


def test_the_seed_decides_the_window() -> None:
    # Keyframes and draws enough that some are left out: every frame is one, one of four is drawn.
    keyframes = replace(CONFIG.keyframes, max_interval=1, heldout_every=0)
    mapping = replace(CONFIG.mapping, iterations=5, window_random=1)
    config = replace(CONFIG, keyframes=keyframes, mapping=mapping)
    sequence = frames(8)
    first = run(sequence, config).bytes()
    assert run(sequence, config).bytes() == first
    assert run(sequence, replace(config, seed=1)).bytes() != first


def test_the_capacity_is_never_passed(room: list[Frame]) -> None:
    config = replace(CONFIG, map=replace(CONFIG.map, capacity=3000))
    slam = Slam(config, room[0].camera)
    for frame in room[:6]:
        slam.track(frame)
        assert slam.map.count <= slam.map.capacity == 3000


def test_an_unrelated_frame_is_lost_and_the_next_is_found(room: list[Frame]) -> None:
    slam = Slam(CONFIG, room[0].camera)
    for frame in room[:4]:
        slam.track(frame)
    keyframes = len(slam.keyframes)
    noise = np.random.default_rng(0).integers(0, 256, room[4].rgb.shape, dtype=np.uint8)
    lost = slam.track(replace(room[4], rgb=noise))
    assert not lost.tracked
    assert lost.reason
    assert not lost.is_keyframe
    assert len(slam.keyframes) == keyframes
    assert slam.track(room[5]).tracked
    assert len(slam.finish()) == 6


@pytest.mark.parametrize("brightness", [0, 20, 255])
def test_a_blank_frame_without_depth_is_lost(room: list[Frame], brightness: int) -> None:
    blank = replace(
        room[4], rgb=np.full_like(room[4].rgb, brightness), depth=np.zeros_like(room[4].depth)
    )
    results = run([*room[:4], blank, room[5]]).results
    assert [result.tracked for result in results] == [True, True, True, True, False, True]
    assert results[4].reason


def test_a_first_frame_beyond_the_reach_of_depth_is_refused(room: list[Frame]) -> None:
    far = replace(room[0], depth=np.full_like(room[0].depth, 25.0))
    with pytest.raises(TrackingError, match=r"no depth under 20 m"):
        run([far])


def test_depth_with_holes_and_nan_is_survived(room: list[Frame]) -> None:
    holes = []
    for frame in room[:5]:
        depth = frame.depth.copy()
        depth[::2] = 0
        depth[1::8, ::3] = np.nan
        depth[3::8, ::5] = np.inf
        holes.append(replace(frame, depth=depth))
    outcome = run(holes)
    assert all(result.tracked for result in outcome.results)
    assert torch.isfinite(outcome.slam.map.live).all()


def test_another_camera_is_refused(room: list[Frame]) -> None:
    slam = Slam(CONFIG, room[0].camera)
    slam.track(room[0])
    other = replace(room[1], camera=replace(room[1].camera, fx=99.0))
    with pytest.raises(TrackingError, match="frame 1 comes from another camera"):
        slam.track(other)


def test_a_first_frame_without_depth_is_refused(room: list[Frame]) -> None:
    slam = Slam(CONFIG, room[0].camera)
    with pytest.raises(TrackingError, match=r"frame 0 has no depth under 20 m to start"):
        slam.track(replace(room[0], depth=np.zeros_like(room[0].depth)))


def test_an_unknown_device_is_refused(room: list[Frame]) -> None:
    with pytest.raises(ConfigError, match="device 'tpu'"):
        Slam(CONFIG, room[0].camera, device="tpu")


def test_nothing_tracked_is_an_empty_trajectory(room: list[Frame]) -> None:
    assert len(Slam(CONFIG, room[0].camera).finish()) == 0
