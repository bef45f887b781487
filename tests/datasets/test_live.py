import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gsslam import Slam, SlamConfig, open_dataset
from gsslam.camera import Camera
from gsslam.cli import main
from gsslam.datasets.base import Dataset
from gsslam.datasets.live import LiveCamera, LiveSequence, open_camera, record
from gsslam.datasets.realsense import calibration_of
from gsslam.datasets.rectify import distorted
from gsslam.datasets.replay import ReplayCamera
from gsslam.errors import DatasetError, OutputError
from gsslam.frame import Frame
from gsslam.run import run_dataset
from tests.datasets.recordings import SMALL, take, write_tum


@pytest.fixture
def scan(tmp_path: Path) -> Dataset:
    return open_dataset(str(write_tum(tmp_path / "scan", take(SMALL, 6))))


def assert_same(a: Frame, b: Frame) -> None:
    assert a.timestamp == pytest.approx(b.timestamp, abs=1e-6)
    np.testing.assert_array_equal(a.rgb, b.rgb)
    np.testing.assert_array_equal(a.depth, b.depth)


def test_replay_keeps_the_pace_of_the_recording(scan: Dataset) -> None:
    camera = ReplayCamera(scan)
    started, frames = time.perf_counter(), list(camera.frames())
    assert time.perf_counter() - started >= scan.timestamps[-1] - 0.001
    assert len(frames) + camera.dropped == 6
    assert [frame.index for frame in frames] == list(range(len(frames)))
    assert_same(frames[0], scan[0])
    assert_same(frames[-1], scan[5])


def test_frames_for_which_nobody_has_time_are_dropped(scan: Dataset) -> None:
    camera = ReplayCamera(scan)
    stamps = []
    for frame in camera.frames():
        stamps.append(frame.timestamp)
        time.sleep(0.08)  # more than two frames' time
    assert camera.dropped >= 2
    assert len(stamps) + camera.dropped == 6
    assert stamps == sorted(set(stamps))


def test_stopped_from_another_thread(scan: Dataset) -> None:
    camera = ReplayCamera(scan)
    frames = camera.frames()
    assert next(frames).index == 0
    thread = threading.Thread(target=camera.stop)
    thread.start()
    thread.join()
    assert list(frames) == []


def test_slam_takes_a_live_camera(scan: Dataset) -> None:
    camera: LiveCamera = ReplayCamera(scan)
    with Slam(SlamConfig(), camera.camera) as slam:
        count = sum(slam.track(frame).tracked for frame in camera.frames())
        assert len(slam.finish()) == count >= 1


@dataclass
class StepCamera:
    """Delivers the frames of a dataset at once, then ends or fails."""

    dataset: Dataset
    fails: bool = False
    name: str = "live/step"
    depth_scale: float = 5000
    stopped: list[bool] = field(default_factory=list)

    @property
    def camera(self) -> Camera:
        return self.dataset.camera

    def frames(self) -> Iterator[Frame]:
        for index in range(len(self.dataset)):
            yield self.dataset[index]
        if self.fails:
            raise DatasetError("the cable was pulled")

    def stop(self) -> None:
        self.stopped.append(True)


def test_what_is_recorded_is_what_was_delivered(scan: Dataset, tmp_path: Path) -> None:
    camera = StepCamera(scan)
    assert record(camera, tmp_path / "out") == 6
    assert camera.stopped
    recorded = open_dataset(str(tmp_path / "out"))
    assert len(recorded) == 6
    for index in range(6):
        assert_same(recorded[index], scan[index])
    assert recorded.ground_truth is not None
    with pytest.raises(OutputError, match="is not empty"):
        record(StepCamera(scan), tmp_path / "out")
    assert record(StepCamera(scan), tmp_path / "two", 2) == 2


def test_a_camera_that_fails_leaves_what_it_delivered(scan: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cable"):
        record(StepCamera(scan, fails=True), tmp_path / "out")
    assert len(open_dataset(str(tmp_path / "out"))) == 6


def test_ctrl_c_ends_a_recording(scan: Dataset, tmp_path: Path) -> None:
    def update(count: int, total: int | None) -> None:
        if count == 3:
            raise KeyboardInterrupt

    assert record(StepCamera(scan), tmp_path / "out", on_progress=update) == 3
    assert len(open_dataset(str(tmp_path / "out"))) == 3


def test_run_on_a_live_camera_gives_the_bytes_of_its_recording(
    scan: Dataset, tmp_path: Path
) -> None:
    with LiveSequence(StepCamera(scan), tmp_path / "recording", 6) as live:
        result = run_dataset(live, SlamConfig(), tmp_path / "live")
    recorded = open_dataset(str(tmp_path / "recording"))
    again = run_dataset(recorded, SlamConfig(), tmp_path / "again")
    for name in ("trajectory.txt", "map.ply"):
        assert (tmp_path / "live" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    metrics = [{m.name: m.value for m in r.metrics} for r in (result, again)]
    for name in ("ate_rmse_cm", "psnr_db", "frames"):
        assert metrics[0][name] == metrics[1][name]


def test_run_that_loses_its_camera_saves_what_there_is(scan: Dataset, tmp_path: Path) -> None:
    camera = StepCamera(scan, fails=True)
    with (
        contextlib.suppress(DatasetError),
        LiveSequence(camera, tmp_path / "recording", 100) as live,
    ):
        run_dataset(live, SlamConfig(), tmp_path / "out")
    assert len((tmp_path / "out" / "trajectory.txt").read_text().splitlines()) == 7  # and a header


def test_frames_can_be_read_again_in_any_order(scan: Dataset, tmp_path: Path) -> None:
    with LiveSequence(StepCamera(scan), tmp_path / "recording", 6) as live:
        assert live[5].index == 5
        live._kept.clear()
        for index in (3, 0, 4):
            assert_same(live[index], scan[index])
        assert len(live.timestamps) == 6
        with pytest.raises(IndexError):
            _ = live[6]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("run --dataset live/realsense", "needs --max-frames"),
        ("run --dataset live/realsense --max-frames 9 --stride 2", "are for recorded sequences"),
        ("run --dataset live/kinect --max-frames 9", "there is live/realsense"),
        ("run --dataset live/realsense --max-frames 9", "needs pyrealsense2"),
        ("datasets record live/realsense out", r"pip install 'gsslam[realsense]'"),
        ("datasets record webcam out", "no live camera 'webcam'"),
        ("doctor --dataset live/realsense", "is a live camera"),
        ("datasets convert live/realsense out", "is a live camera"),
    ],
)
def test_bad_use_is_one_line(
    arguments: str,
    what: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyrealsense2", None)
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert what in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_camera_is_one_line() -> None:
    pytest.importorskip("pyrealsense2")
    with pytest.raises(DatasetError, match="no RealSense camera delivers"):
        open_camera("live/realsense")


COEFFICIENTS = (-0.055, 0.063, 0.0004, -0.0007, -0.02)


def intrinsics(model: str, coeffs: tuple[float, ...]) -> SimpleNamespace:
    return SimpleNamespace(
        width=640, height=480, fx=386.0, fy=385.5, ppx=320.2, ppy=241.1,
        model=f"distortion.{model}", coeffs=coeffs,
    )  # fmt: skip


def test_realsense_lens_models() -> None:
    plain = calibration_of(intrinsics("brown_conrady", COEFFICIENTS))
    assert plain.distortion == COEFFICIENTS
    assert (plain.camera.cx, plain.camera.cy) == pytest.approx((320.7, 241.6))
    assert not calibration_of(intrinsics("inverse_brown_conrady", (0.0,) * 5)).is_distorted
    with pytest.raises(DatasetError, match="lens model ftheta"):
        calibration_of(intrinsics("ftheta", COEFFICIENTS))


def test_inverse_lens_model_is_inverted() -> None:
    """There and back through RealSense's formula and ours: a tenth of a pixel."""
    lens = calibration_of(intrinsics("inverse_brown_conrady", COEFFICIENTS))
    x, y = np.meshgrid(np.linspace(-0.8, 0.8, 21), np.linspace(-0.6, 0.6, 21))
    undistorted = distorted(x, y, COEFFICIENTS)
    back = distorted(*undistorted, lens.distortion)
    assert 386 * np.abs(np.stack(back) - np.stack([x, y])).max() < 0.1
