"""Features learned beside mapping: they change nothing, and are the same every time."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gsslam import ConfigError, Frame, Slam
from gsslam.cli import main
from gsslam.cli.run import Run
from gsslam.config import KeyframeConfig, MapConfig
from gsslam.features.files import read_features
from gsslam.features.learner import FeatureLearner
from gsslam.features.query import poses_of
from gsslam.report import Progress
from gsslam.run import RunOptions, resume_run, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.tracking_loop import LoopOptions
from tests.features.small_run import FACTORY, FEATURES, LEARNING, PLAIN, SOURCE, start, teacher


def map_and_path(folder: RunFolder) -> bytes:
    return folder.trajectory.read_bytes() + folder.map.read_bytes()


def test_features_change_neither_map_nor_trajectory(tmp_path: Path, whole: RunFolder) -> None:
    assert map_and_path(start(tmp_path / "plain", PLAIN)) == map_and_path(whole)


def test_one_thread_learns_the_same_bytes(tmp_path: Path, whole: RunFolder) -> None:
    single = start(tmp_path / "run", LEARNING, threads=1)
    assert map_and_path(single) == map_and_path(whole)
    assert single.features.read_bytes() == whole.features.read_bytes()


@pytest.mark.parametrize("stop_at", [3, 11])
def test_an_interrupted_run_goes_on_to_the_same_bytes(
    tmp_path: Path, whole: RunFolder, stop_at: int
) -> None:
    """Before there is a dictionary, and after."""

    def interrupt(progress: Progress) -> None:
        if progress.step == "tracking" and progress.done == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    result = run_dataset(
        SOURCE.open(),
        LEARNING,
        tmp_path / "run",
        options=RunOptions(loop=LoopOptions(checkpoint_every=100)),
        source=SOURCE,
        on_progress=interrupt,
        slam_factory=FACTORY,
    )
    assert result.interrupted
    resume_run(tmp_path / "run", slam_factory=FACTORY)
    resumed = RunFolder(tmp_path / "run")
    assert map_and_path(resumed) == map_and_path(whole)
    assert resumed.features.read_bytes() == whole.features.read_bytes()


@pytest.mark.gpu
def test_a_gpu_learns_the_same_bytes_every_time(tmp_path: Path, device: str) -> None:
    plain = start(tmp_path / "plain", PLAIN, device=device)
    runs = [start(tmp_path / str(i), LEARNING, threads=i, device=device) for i in (1, 2)]
    for run in runs:
        assert map_and_path(run) == map_and_path(plain)
    assert runs[0].features.read_bytes() == runs[1].features.read_bytes()
    features = read_features(runs[0], teacher())
    rgb = torch.from_numpy(np.ascontiguousarray(frames(8)[7].rgb)).permute(2, 0, 1) / 255
    assert features.agreement(rgb, poses_of(runs[0])[7], stride=3) > 0.7


def frames(count: int) -> list[Frame]:
    dataset = SOURCE.open()
    return [dataset[i] for i in range(count)]


def test_tracking_sees_queries_with_the_map_that_they_belong_to() -> None:
    seen = frames(14)
    with Slam(LEARNING, seen[0].camera, teacher=teacher()) as slam:
        for frame in seen:
            slam.track(frame)
        slam.finish()
        snapshot = slam._snapshot
        assert torch.equal(snapshot.queries, slam.map.live_queries)
        assert snapshot.queries.any()
        # As after a failure in mapping: the map is what tracking last saw.
        queries = snapshot.queries.clone()
        slam.map.reset(snapshot.live, snapshot.queries)
        assert torch.equal(slam.map.live_queries, queries)


def test_learning_brings_the_decoded_features_nearer_to_the_encoder() -> None:
    seen = frames(14)
    cosines = []
    for iterations in (1, 12):
        config = replace(LEARNING, features=replace(FEATURES, iterations=iterations))
        with Slam(config, seen[0].camera, teacher=teacher()) as slam:
            for frame in seen:
                slam.track(frame)
            pose = slam.finish().T_world_camera[7]  # held out
            rgb = torch.from_numpy(np.ascontiguousarray(seen[7].rgb)).permute(2, 0, 1) / 255
            cosines.append(slam.features.agreement(rgb, pose, stride=3))
    assert cosines[1] > cosines[0]
    assert cosines[1] > 0.8


def test_the_memory_budget_counts_features_and_holds() -> None:
    budget = MapConfig(memory_budget_mb=6.0)
    seen = frames(18)
    counts = []
    for config in (PLAIN, LEARNING):
        with Slam(replace(config, map=budget), seen[0].camera, teacher=teacher()) as slam:
            used = [slam.track(frame).memory_mb for frame in seen]
            slam.finish()
            counts.append(slam.map.capacity)
            assert max(used) <= 6.0
    assert counts[1] < counts[0]


def test_features_of_dropped_keyframes_are_dropped_too() -> None:
    seen = frames(18)
    config = replace(LEARNING, map=MapConfig(memory_budget_mb=5.6))
    config = replace(config, mapping=replace(config.mapping, window_size=1, window_random=1))
    config = replace(config, keyframes=KeyframeConfig(max_interval=2, min_interval=1))
    with Slam(config, seen[0].camera, teacher=teacher()) as slam:
        for frame in seen:
            slam.track(frame)
        kept = [keyframe.index for keyframe in slam.keyframes if keyframe.has_images]
        assert len(kept) < len(slam.keyframes)
        assert list(slam.features.tokens) == kept


def test_an_encoder_of_few_channels_is_refused_at_once() -> None:
    camera = SOURCE.open().camera
    with pytest.raises(ConfigError, match=r"features\.dim = 8 must be less than .* the 6 channels"):
        FeatureLearner(FEATURES, camera, 0.3, 0, teacher(6))
    with pytest.raises(ConfigError, match="'given' must be efficientnet-lite0"):
        Slam(LEARNING, camera)


def test_without_features_or_a_dictionary_there_is_nothing_to_ask() -> None:
    seen = frames(1)
    with Slam(PLAIN, seen[0].camera) as slam, pytest.raises(ConfigError, match="not learned"):
        _ = slam.features
    with Slam(LEARNING, seen[0].camera, teacher=teacher()) as slam:
        slam.track(seen[0])
        with pytest.raises(ConfigError, match=r"needs features\.first_keyframes = 2 keyframes"):
            _ = slam.features


def test_a_missing_extra_is_said_before_the_first_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ConfigError, match=r"needs safetensors .* pip install 'gsslam\[features\]'"):
        start(tmp_path / "run", LEARNING)
    assert not (tmp_path / "run").exists()


def test_the_flag_switches_features_on(capsys: pytest.CaptureFixture[str]) -> None:
    command = Run(features=True, config=PLAIN, memory_budget="100MB").resolved_config()
    assert command.features.enabled
    assert command.map.memory_budget_mb == 100
    assert replace(command, features=PLAIN.features, map=PLAIN.map) == PLAIN
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--features" in text
    assert "--features.teacher" in text


def test_a_run_too_short_for_a_dictionary_is_still_a_run(tmp_path: Path) -> None:
    folder = start(
        tmp_path / "run", replace(LEARNING, features=replace(FEATURES, first_keyframes=50))
    )
    assert folder.metrics.exists()
    assert not folder.features.exists()
    assert "needs features.first_keyframes = 50 keyframes" in folder.log.read_text()
