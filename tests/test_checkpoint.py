"""A run that is killed at any moment goes on to the same bytes."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gsslam import SlamConfig
from gsslam.checkpoint import Checkpoint
from gsslam.config import KeyframeConfig, MapConfig, MappingConfig, PruningConfig
from gsslam.errors import CheckpointError, ConfigError, DatasetError, OutputError
from gsslam.evaluation.records import FrameRecord
from gsslam.report import Progress
from gsslam.run import RunOptions, resume_run, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.slam_state import SlamState
from gsslam.source import Source
from gsslam.tracking_loop import LoopOptions

CONFIG = SlamConfig(mapping=MappingConfig(first_iterations=20, iterations=4))
SOURCE = Source("synthetic/room_noisy", resolution=(64, 48), max_frames=22)
OPTIONS = RunOptions(loop=LoopOptions(checkpoint_every=3))
# As many in the suite; GSSLAM_KILLS sets another number.
KILLS = int(os.environ.get("GSSLAM_KILLS", "4"))


def start(out: Path, options: RunOptions = OPTIONS) -> None:
    run_dataset(SOURCE.open(), CONFIG, out, options=options, source=SOURCE)


# So little memory that spheres and images of keyframes go, with patience for one judgement.
TIGHT_CONFIG = SlamConfig(
    mapping=MappingConfig(first_iterations=20, iterations=4, window_size=3, window_random=2),
    keyframes=KeyframeConfig(max_interval=2),
    pruning=PruningConfig(judgements=2),
    map=MapConfig(memory_budget_mb=1.85),
)


def results(out: Path) -> bytes:
    return (out / "trajectory.txt").read_bytes() + (out / "map.ply").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Trajectory and map of a run without checkpoints."""
    out = tmp_path_factory.mktemp("whole") / "run"
    start(out, RunOptions(loop=LoopOptions(checkpoint_every=0)))
    return results(out)


@pytest.fixture(scope="module")
def spawn() -> Iterator[Callable[..., multiprocessing.process.BaseProcess]]:
    """Start a function in a process of its own, which has the package imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gsslam.run", "gsslam.slam", "tests.test_checkpoint"])

    def process(target: Callable[..., None], *arguments: object) -> object:
        child = context.Process(target=target, args=arguments)
        child.start()
        return child

    yield process


def go_on(out: Path) -> None:
    """Resume, or start where not even the configuration was written."""
    if (out / "config.yaml").exists():
        resume_run(out)
    else:
        start(out)


@pytest.mark.parametrize("number", range(KILLS))
def test_killed_and_resumed_is_the_same_as_never_stopped(
    tmp_path: Path,
    uninterrupted: bytes,
    spawn: Callable[..., multiprocessing.process.BaseProcess],
    number: int,
) -> None:
    chance = random.Random(number)
    out = tmp_path / "run"
    kills = 0
    for _ in range(2):  # killed, and killed again after it was resumed
        child = spawn(go_on, out)
        child.join(timeout=chance.uniform(0.2, 3.0))
        if child.exitcode is None:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        child.join()
    folder = RunFolder(out)
    if not folder.metrics.exists() or folder.checkpoint.exists():
        go_on(out)
    assert results(out) == uninterrupted
    assert not folder.checkpoint.exists()
    assert not list(out.glob(".*.tmp*"))
    assert [record.index for record in folder.read_frames()] == list(range(22))


def test_interrupted_and_resumed_with_the_other_number_of_threads(
    tmp_path: Path, device: str
) -> None:
    start(tmp_path / "whole", RunOptions(device, LoopOptions(checkpoint_every=0)))

    def interrupt(progress: Progress) -> None:
        if progress.step == "tracking" and progress.done == 10:
            os.kill(os.getpid(), signal.SIGINT)

    options = RunOptions(device, LoopOptions(threads=1, checkpoint_every=100))
    out = tmp_path / "run"
    result = run_dataset(
        SOURCE.open(), CONFIG, out, options=options, source=SOURCE, on_progress=interrupt
    )
    assert result.interrupted
    folder = RunFolder(out)
    text = folder.config.read_text()
    assert "threads: 1" in text
    folder.config.write_text(text.replace("threads: 1", "threads: 2"))
    assert not resume_run(out).interrupted
    assert results(out) == results(tmp_path / "whole")
    with pytest.raises(ConfigError, match="nothing to resume"):
        resume_run(out)


@pytest.mark.parametrize("stop_at", [7, 15, 16, 20])
def test_dropped_keyframes_and_judged_spheres_come_back(tmp_path: Path, stop_at: int) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == stop_at:
            raise KeyboardInterrupt

    whole, out = tmp_path / "whole", tmp_path / "run"
    never = RunOptions(loop=LoopOptions(threads=1, checkpoint_every=0))
    run_dataset(SOURCE.open(), TIGHT_CONFIG, whole, options=never, source=SOURCE)
    often = RunOptions(loop=LoopOptions(checkpoint_every=1))
    with pytest.raises(KeyboardInterrupt):
        run_dataset(
            SOURCE.open(), TIGHT_CONFIG, out, options=often, source=SOURCE, on_progress=stop
        )
    state = Checkpoint.read(RunFolder(out).checkpoint).slam
    has_images = state.arrays["map.keyframes.has_images"]
    if stop_at >= 15:
        assert not has_images.all()
        assert state.values["map"]["spare_images"] == 1
    assert [bool(digest) for digest in state.values["map"]["images"]] == has_images.tolist()
    resume_run(out)
    assert results(out) == results(whole)


def test_a_changed_configuration_or_dataset_is_refused(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 7:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_dataset(SOURCE.open(), CONFIG, out, options=OPTIONS, source=SOURCE, on_progress=stop)
    # Killed without a trajectory, a run leaves nothing unless there is a checkpoint.
    folder = RunFolder(out)
    text = folder.config.read_text()
    folder.config.write_text(text.replace("iterations: 4\n", "iterations: 5\n"))
    with pytest.raises(CheckpointError, match=r"config\.yaml has been changed"):
        resume_run(out)
    folder.config.write_text(text.replace("room_noisy", "room"))
    with pytest.raises(CheckpointError, match="frame 0 is not the image of before"):
        resume_run(out)
    folder.config.write_text(text)
    resume_run(out)


@pytest.fixture
def checkpoint() -> Checkpoint:
    arrays = {"map.xyz": np.arange(6, dtype=np.float32).reshape(2, 3)}
    values = {"version": 3, "random": {"state": 2**100}, "pending_ms": None, "residual": 0.1}
    records = [FrameRecord(0, "tracked", heldout=False, psnr_db=None, gain=1 / 3)]
    return Checkpoint(1, records, 0.25, "abc", SlamState(arrays, values))


def test_a_checkpoint_comes_back_whole(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "checkpoint.bin"
    checkpoint.write(path)
    again = Checkpoint.read(path)
    assert again.slam.values == checkpoint.slam.values
    assert np.array_equal(again.slam.arrays["map.xyz"], checkpoint.slam.arrays["map.xyz"])
    assert replace(again, slam=checkpoint.slam) == checkpoint


def test_damage_anywhere_is_noticed(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "checkpoint.bin"
    checkpoint.write(path)
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(CheckpointError, match=r"is damaged|is not a checkpoint"):
            Checkpoint.read(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoint.read(path)
    with pytest.raises(CheckpointError, match="cannot read"):
        Checkpoint.read(tmp_path / "nowhere.bin")


def test_a_folder_that_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not the folder of a run"):
        resume_run(tmp_path)


def limited(out: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    start(out)


def test_64_open_files_are_enough(
    tmp_path: Path,
    uninterrupted: bytes,
    spawn: Callable[..., multiprocessing.process.BaseProcess],
) -> None:
    child = spawn(limited, tmp_path / "run")
    child.join()
    assert child.exitcode == 0
    assert results(tmp_path / "run") == uninterrupted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system takes the rights of root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_one_error_and_what_fits_is_saved(small_disk: Path) -> None:
    out = small_disk / "run"
    with pytest.raises(OutputError, match=r"cannot write .*map\.ply: No space left on device"):
        start(out)
    # The trajectory was written before the map, which is larger; the checkpoints did not fit.
    assert len((out / "trajectory.txt").read_text().splitlines()) == 23
    assert "no checkpoint at frame 3" in (out / "log.txt").read_text()
    assert not list(out.glob(".*.tmp*"))
