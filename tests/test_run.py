"""A whole run over the synthetic room, with a Slam that knows the answer, and what may go wrong."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from gsslam.config import KeyframeConfig, SlamConfig
from gsslam.errors import BadFrameError, DatasetError, TrackingError
from gsslam.export import read_ply
from gsslam.frame import Frame
from gsslam.reevaluate import evaluate_run
from gsslam.report import Progress
from gsslam.run import RunResult, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.trajectory import Trajectory
from tests.oracle_slam import OracleSlam

ROOM = Source("synthetic/room", resolution=(48, 36), max_frames=17)
FILES = {
    *("config.yaml", "trajectory.txt", "map.ply", "map.npz", "metrics.json"),
    *("ground_truth.txt", "frames.jsonl", "log.txt"),
    *("plots/trajectory.png", "plots/frames.png", "plots/memory.png"),
}


class Room:
    """The synthetic room; frames in ``bad`` cannot be read, ``change`` alters the others."""

    name = "synthetic/room"

    def __init__(
        self, bad: frozenset[int] = frozenset(), change: Callable[[Frame], Frame] = lambda f: f
    ) -> None:
        self._room = ROOM.open()
        self._bad, self._change = bad, change
        self.camera = self._room.camera
        self.ground_truth = self._room.ground_truth
        self.timestamps = self._room.timestamps

    def __len__(self) -> int:
        return len(self._room)

    def __getitem__(self, index: int) -> Frame:
        if index in self._bad:
            raise BadFrameError(f"rgb/{index}.png is truncated")
        return self._change(self._room[index])


def oracle(**attributes: object) -> type[OracleSlam]:
    return type("Oracle", (OracleSlam,), attributes)


def files_in(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def values(result: RunResult) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in result.metrics}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run with drift, one lost and one unreadable frame."""
    out = tmp_path_factory.mktemp("runs") / "a" / "b"
    slam = oracle(lost=frozenset({5}), drift=0.001)
    return run_dataset(Room(bad=frozenset({9})), SlamConfig(), out, source=ROOM, slam_factory=slam)


def test_the_run_folder_is_complete(run: RunResult) -> None:
    assert files_in(run.folder) == FILES
    assert not run.interrupted


def test_metrics_are_flat_strict_json(run: RunResult) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = (run.folder / "metrics.json").read_text()
    stored = json.loads(text, parse_constant=refuse)
    assert stored["dataset"] == "synthetic/room"
    assert (stored["width"], stored["height"]) == (48, 36)
    assert stored["interrupted"] is False
    assert (stored["frames"], stored["lost_frames"], stored["skipped_frames"]) == (16, 1, 1)
    for name in ("device", "version", "seed", "config_hash"):
        assert stored[name] is not None
    for name, value in values(run).items():
        assert stored[name] == value
        # Watched for half a second, no two frames are a second apart; and no GPU was used.
        assert (value is None) == ("1s" in name or name.startswith("gpu_"))
    assert 20 < stored["psnr_db"] <= stored["psnr_exposure_db"]
    # 1 mm a frame, and 2 mm over the frame that is missing.
    expected = np.sqrt((14 * 0.1**2 + 0.2**2) / 15)
    assert stored["rpe_translation_cm"] == pytest.approx(expected, rel=1e-6)
    assert 0 < stored["ate_rmse_cm"] < 1
    assert stored["frames_per_s"] == pytest.approx(16 / stored["loop_s"])
    assert 20 < stored["peak_memory_mb"] < 4000
    # The last of the oracle's 17 frames says most.
    assert stored["peak_budget_mb"] == 26
    assert stored["map_mb"] == pytest.approx((run.folder / "map.ply").stat().st_size / 1e6)


def test_frames_tell_their_story(run: RunResult) -> None:
    records = RunFolder(run.folder).read_frames()
    assert [record.index for record in records] == list(range(17))
    assert [r.index for r in records if r.status == "skipped"] == [9]
    assert [r.index for r in records if r.status == "lost"] == [5]
    assert [r.index for r in records if r.heldout] == [7, 15]
    assert [r.index for r in records if r.keyframe] == [0, 4, 8, 12, 16]
    assert "rgb/9.png is truncated" in records[9].reason
    scored = [r.psnr_db for r in records if r.status != "skipped"]
    assert values(run)["psnr_db"] == pytest.approx(np.mean(scored))


def test_the_log_names_lost_and_skipped_frames(run: RunResult) -> None:
    log = (run.folder / "log.txt").read_text()
    assert "skipped frame 9: rgb/9.png is truncated" in log
    assert "lost frame 5: the oracle looked away" in log


def test_trajectory_and_map_are_those_of_slam(run: RunResult) -> None:
    room = Room()
    trajectory = Trajectory.read(run.folder / "trajectory.txt")
    assert len(trajectory) == 16
    expected = room[16].T_world_camera.copy()
    expected[0, 3] += 0.016
    np.testing.assert_allclose(trajectory.T_world_camera[-1], expected, atol=1e-7)
    state = read_ply(run.folder / "map.ply")
    assert len(state) == values(run)["spheres"]


def test_config_says_what_was_run(run: RunResult) -> None:
    config, about = RunFolder(run.folder).read_config()
    assert config == SlamConfig()
    assert Source.from_values(about) == ROOM
    assert "tracking" in yaml.safe_load((run.folder / "config.yaml").read_text())


def test_plots_show_something(run: RunResult) -> None:
    for name in ("trajectory", "frames"):
        picture = cv2.imread(str(run.folder / "plots" / f"{name}.png"))
        assert min(picture.shape[:2]) > 400
        assert picture.std() > 20


def test_evaluating_again_gives_the_same_numbers(run: RunResult, tmp_path: Path) -> None:
    before = json.loads((run.folder / "metrics.json").read_text())
    records = RunFolder(run.folder).read_frames()
    again = evaluate_run(run.folder, slam_factory=OracleSlam)
    after = json.loads((run.folder / "metrics.json").read_text())
    assert before.keys() == after.keys()
    for name, value in before.items():
        if name == "evaluation_s":
            continue
        # Poses are written with nine decimals and colours pass through float32 harmonics.
        is_float = isinstance(value, float)
        expected = pytest.approx(value, rel=1e-4, abs=1e-6) if is_float else value
        assert after[name] == expected, name
    assert {m.name for m in again.metrics} <= after.keys()
    assert [r.status for r in RunFolder(run.folder).read_frames()] == [r.status for r in records]


def test_folders_that_are_no_run_are_refused(run: RunResult, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not the folder of a run"):
        evaluate_run(tmp_path, slam_factory=OracleSlam)
    (tmp_path / "config.yaml").write_text("seed: 3\n")
    with pytest.raises(DatasetError, match="no section 'run'"):
        evaluate_run(tmp_path, slam_factory=OracleSlam)
    (tmp_path / "config.yaml").write_text((run.folder / "config.yaml").read_text())
    with pytest.raises(DatasetError, match=r"cannot read metrics\.json"):
        evaluate_run(tmp_path, slam_factory=OracleSlam)
    for name in ("metrics.json", "frames.jsonl", "config.yaml"):
        (tmp_path / name).write_text("{ damaged")
        with pytest.raises(DatasetError, match=rf"{name} is damaged"):
            evaluate_run(tmp_path, slam_factory=OracleSlam)
        (tmp_path / name).write_text((run.folder / name).read_text())


def test_ctrl_c_ends_the_run_with_what_there_is(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step == "tracking" and progress.done == 6:
            os.kill(os.getpid(), signal.SIGINT)

    result = run_dataset(
        *(Room(), SlamConfig(), tmp_path / "run"),
        on_progress=interrupt,
        slam_factory=OracleSlam,
    )
    assert result.interrupted
    assert files_in(tmp_path / "run") == FILES | {"checkpoint.bin"}
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert stored["interrupted"] is True
    assert stored["frames"] == 6
    assert stored["psnr_db"] > 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_during_evaluation_keeps_the_trajectory_errors(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step == "evaluating" and progress.done == 2:
            os.kill(os.getpid(), signal.SIGINT)

    result = run_dataset(
        *(Room(), SlamConfig(), tmp_path / "run"),
        on_progress=interrupt,
        slam_factory=OracleSlam,
    )
    assert result.interrupted
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert stored["psnr_db"] is None
    assert stored["ate_rmse_cm"] == pytest.approx(0, abs=1e-9)
    assert files_in(tmp_path / "run") == FILES


@pytest.mark.parametrize("kind", [TrackingError, ZeroDivisionError])
def test_a_failure_midway_loses_nothing(tmp_path: Path, kind: type[Exception]) -> None:
    slam = oracle(fails_at=8, failure=kind)
    with pytest.raises(kind, match="nothing more to say"):
        run_dataset(Room(), SlamConfig(), tmp_path / "run", source=ROOM, slam_factory=slam)
    folder = RunFolder(tmp_path / "run")
    assert folder.read_metrics()["failure"] == "the oracle has nothing more to say"
    assert "stopped at frame 8: the oracle has nothing more to say" in folder.log.read_text()
    plots = {name for name in FILES if name.startswith("plots")}
    assert files_in(folder.path) == FILES - plots - {"ground_truth.txt"} | {"flight.jsonl"}
    result = evaluate_run(folder.path, slam_factory=OracleSlam)
    assert values(result)["frames"] == 8
    assert values(result)["psnr_db"] > 20
    assert folder.read_metrics()["failure"] == "the oracle has nothing more to say"
    assert files_in(folder.path) == FILES | {"flight.jsonl"}


def test_a_known_failure_at_once_leaves_no_trace_an_unknown_one_the_log(tmp_path: Path) -> None:
    for kind in (TrackingError, ZeroDivisionError):
        slam = oracle(fails_at=0, failure=kind)
        with pytest.raises(kind):
            run_dataset(Room(), SlamConfig(), tmp_path / "a" / kind.__name__, slam_factory=slam)
    assert files_in(tmp_path) == {f"a/ZeroDivisionError/{n}" for n in ("config.yaml", "log.txt")}
    assert "Traceback" in (tmp_path / "a" / "ZeroDivisionError" / "log.txt").read_text()


@pytest.mark.parametrize("bad", [range(17), range(9), range(1, 17)])
def test_mostly_unusable_sequences_are_refused(tmp_path: Path, bad: range) -> None:
    (tmp_path / "run").mkdir()
    message = r"9 of the first \d+ frames are unusable; frame \d: rgb"
    with pytest.raises(DatasetError, match=message):
        run_dataset(
            Room(bad=frozenset(bad)), SlamConfig(), tmp_path / "run", slam_factory=OracleSlam
        )
    assert list((tmp_path / "run").iterdir()) == []


def test_sequences_without_ground_truth_can_be_run(tmp_path: Path) -> None:
    room = Room(change=lambda frame: replace(frame, T_world_camera=None))
    result = run_dataset(room, SlamConfig(), tmp_path / "run", slam_factory=OracleSlam)
    assert values(result)["ate_rmse_cm"] is None
    assert values(result)["psnr_db"] > 5
    assert files_in(tmp_path / "run") == FILES - {"ground_truth.txt"}


@pytest.mark.parametrize(
    ("name", "folder"),
    [("tum/fr1_xyz", "tum_fr1_xyz"), ("7scenes/redkitchen", "seven_scenes_redkitchen")],
)
def test_true_poses_explain_real_frames(
    data_root: Path, tmp_path: Path, name: str, folder: str
) -> None:
    source = Source(name, data_root / folder, resolution=(80, 60), max_frames=8, stride=2)
    config = SlamConfig(keyframes=KeyframeConfig(max_interval=1))
    result = run_dataset(
        *(source.open(), config, tmp_path / "run"), source=source, slam_factory=OracleSlam
    )
    numbers = values(result)
    assert numbers["frames"] == 8
    assert numbers["ate_rmse_cm"] == pytest.approx(0, abs=1e-9)
    # Points drawn as squares of three pixels: coarse, but depth and colour must fall into place.
    assert numbers["psnr_heldout_db"] > 13
    assert numbers["depth_l1_cm"] < 10
    assert numbers["depth_coverage_pct"] > 95
