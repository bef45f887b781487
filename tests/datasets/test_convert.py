from pathlib import Path

import numpy as np
import pytest

from gsslam import Slam, SlamConfig, open_dataset
from gsslam.cli import main
from gsslam.datasets.base import Dataset
from gsslam.datasets.convert import convert_dataset
from gsslam.errors import ConfigError, DatasetError, OutputError
from tests.datasets.bags import room_bag
from tests.datasets.recordings import SMALL, take, write_folder, write_replica, write_tum


def trajectory(dataset: Dataset) -> np.ndarray:
    with Slam(SlamConfig(), dataset.camera) as slam:
        for frame in (dataset[index] for index in range(len(dataset))):
            slam.track(frame)
        return slam.finish().T_world_camera


@pytest.mark.parametrize("source", ["replica", "folder", "bag", "synthetic"])
def test_converted_sequence_runs_to_the_same_trajectory(source: str, tmp_path: Path) -> None:
    if source == "synthetic":
        dataset = open_dataset("synthetic/room", resolution=(64, 48), max_frames=6)
    elif source == "bag":
        dataset = open_dataset(str(room_bag(take(SMALL, 6, 1e9)).write(tmp_path / "ros1.bag")))
    else:
        write = {"replica": write_replica, "folder": write_folder}[source]
        dataset = open_dataset(str(write(tmp_path / "scan", take(SMALL, 6))))
    done = convert_dataset(dataset, tmp_path / "out")
    assert (done.frames, done.skipped, done.too_far) == (6, 0, 0)
    scales = {"replica": 6553.5, "folder": 1000, "bag": 1000, "synthetic": 5000}
    assert done.depth_scale == scales[source]
    converted = open_dataset(str(tmp_path / "out"))
    assert converted.name == "tum/out"
    assert converted.camera == dataset.camera
    np.testing.assert_allclose(converted.timestamps, dataset.timestamps, atol=1e-6)
    for index in range(6):
        np.testing.assert_array_equal(converted[index].rgb, dataset[index].rgb)
        step = 0 if source != "synthetic" else 0.5 / 5000
        np.testing.assert_allclose(
            converted[index].depth, dataset[index].depth, atol=step, rtol=1e-6 if step else 0
        )
    assert converted.ground_truth is not None
    assert dataset.ground_truth is not None
    np.testing.assert_allclose(
        converted.ground_truth.T_world_camera, dataset.ground_truth.T_world_camera, atol=1e-8
    )
    poses = trajectory(dataset), trajectory(converted)
    if source == "synthetic":
        np.testing.assert_allclose(
            *poses, atol=3e-3
        )  # half a step of depth is 0.1 mm, pixels are large
    else:
        np.testing.assert_array_equal(*poses)


@pytest.mark.parametrize("resolution", [None, (160, 120)])
def test_distorted_real_sequence_stays_the_same(
    resolution: tuple[int, int] | None, fr1_xyz: Path, tmp_path: Path
) -> None:
    dataset = open_dataset("tum/fr1_xyz", fr1_xyz, max_frames=5, resolution=resolution)
    convert_dataset(dataset, tmp_path / "out")
    converted = open_dataset("tum", tmp_path / "out")
    np.testing.assert_array_equal(converted.timestamps, dataset.timestamps)
    if resolution:
        np.testing.assert_array_equal(trajectory(converted), trajectory(dataset))
    for index in range(5):
        np.testing.assert_array_equal(converted[index].rgb, dataset[index].rgb)
        np.testing.assert_array_equal(converted[index].depth, dataset[index].depth)


def test_bad_frames_are_left_out_and_counted(tmp_path: Path) -> None:
    scan = write_tum(tmp_path / "scan", take(SMALL, 3))
    bad = sorted((scan / "depth").iterdir())[1]
    bad.write_bytes(bad.read_bytes()[:60])
    seen: list[tuple[int, int]] = []
    done = convert_dataset(
        open_dataset(str(scan)), tmp_path / "out", on_progress=lambda *n: seen.append(n)
    )
    assert (done.frames, done.skipped) == (2, 1)
    assert "truncated" in done.reason
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert len(open_dataset(str(tmp_path / "out"))) == 2


def test_what_16_bits_cannot_hold_is_left_out(tmp_path: Path) -> None:
    dataset = open_dataset(str(write_tum(tmp_path / "scan", take(SMALL, 1))))
    depth = dataset[0].depth
    limit = 65534.5 / 30000
    done = convert_dataset(dataset, tmp_path / "out", depth_scale=30000)
    assert done.too_far == int((depth > limit).sum()) > 0
    found = open_dataset(str(tmp_path / "out"))[0].depth
    np.testing.assert_array_equal(found > 0, depth <= limit)


def test_nothing_stays_of_a_conversion_that_fails(tmp_path: Path) -> None:
    scan = write_tum(tmp_path / "scan", take(SMALL, 2))
    dataset = open_dataset(str(scan))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("")
    with pytest.raises(OutputError, match="full exists already"):
        convert_dataset(dataset, tmp_path / "full")
    with pytest.raises(ConfigError, match="depth scale"):
        convert_dataset(dataset, tmp_path / "out", depth_scale=float("nan"))
    for path in (scan / "depth").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DatasetError, match="no usable frame"):
        convert_dataset(dataset, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "scan"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scan = write_tum(tmp_path / "scan", take(SMALL, 4))
    out = tmp_path / "deep" / "out"
    arguments = ["datasets", "convert", str(scan), str(out), "--stride", "2"]
    assert main([*arguments, "--resolution", "32x24"]) == 0
    assert "2 frames in" in capsys.readouterr().out
    assert open_dataset(str(out)).camera.width == 32
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["datasets", "convert", "nowhere", str(tmp_path / "x")]) == 2
    assert "unknown dataset 'nowhere'" in capsys.readouterr().err
