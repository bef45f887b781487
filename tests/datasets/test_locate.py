"""How a dataset is named: catalogue, format, path, data root; and what is said where it fails."""

import os
from pathlib import Path

import numpy as np
import pytest

from gsslam.camera import Camera
from gsslam.cli import main
from gsslam.cli.run import run_defaults
from gsslam.datasets import catalogue, open_dataset
from gsslam.datasets.registry import describe, resolve
from gsslam.errors import DatasetError
from gsslam.presets import load_preset
from gsslam.run_folder import RunFolder
from tests.datasets.bags import room_bag
from tests.datasets.recordings import SMALL, take, write_folder, write_replica, write_tum


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSSLAM_DATA_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_resolved_names_work_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_bag(take(SMALL, 2, 10.0)).write(tmp_path / "ros1.bag")
    name, path = resolve("ros1.bag")
    assert (name, path) == ("bag/ros1", Path("ros1.bag"))
    assert path is not None
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert open_dataset(name, tmp_path / path).name == name
    assert resolve("synthetic/room") == ("synthetic/room", None)
    assert resolve("tum/fr3_office", tmp_path) == ("tum/fr3_long_office_household", tmp_path)


@pytest.mark.parametrize("below", ["replica/room0", "room0", "Replica/room0"])
def test_data_root(below: str, tmp_path: Path) -> None:
    scene = write_replica(tmp_path / "scene", take(SMALL, 2))
    place = tmp_path / "data" / below
    place.parent.mkdir(parents=True)
    scene.rename(place)
    assert resolve("replica/room0", None, tmp_path / "data") == ("replica/room0", place)
    with pytest.raises(DatasetError, match=r"replica/room1 is not below .*: there is none of"):
        resolve("replica/room1", None, tmp_path / "data")
    with pytest.raises(DatasetError, match="the data root nowhere does not exist"):
        resolve("replica/room1", None, Path("nowhere"))


def test_data_root_knows_the_names_of_archives(tmp_path: Path) -> None:
    for name, folder in (
        ("tum/fr1_xyz", "rgbd_dataset_freiburg1_xyz"),
        ("bonn/balloon", "rgbd_bonn_dataset/rgbd_bonn_balloon"),
        ("icl_nuim/living_room0n", "living_room_traj0n_frei_png"),
        ("scannet/scene0000_00", "scans/scene0000_00"),
        ("7scenes/chess", "chess"),
    ):
        place = tmp_path / "data" / folder
        place.mkdir(parents=True)
        assert resolve(name, None, tmp_path / "data") == (name, place)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nowhere.bag", r"there is no file or folder nowhere\.bag"),
        ("./nowhere", r"there is no file or folder \./nowhere"),
        ("/nowhere/at/all", "there is no file or folder /nowhere/at/all"),
        ("empty", "empty has the layout of no known format"),
        ("notes.txt", "is no recording that gsslam knows"),
        ("scan.zip", r"scan\.zip is an archive: unpack it"),
        ("bag", r"pass its folder with --path; it has a colour and a depth topic"),
        ("scannet/scene0000_00", r"must be asked for at http://www\.scan-net\.org"),
        ("replica/room9", r"did you mean replica/room\d"),
        ("7scenes/chess/seq-09", "has no recording 'seq-09'; it has seq-01, seq-02"),
        ("bonn/baloon", "did you mean bonn/balloon"),
        ("secret", "cannot read secret"),
    ],
)
def test_what_is_not_there_is_named(
    name: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "scan.zip").touch()
    (tmp_path / "secret").mkdir(mode=0)
    if name == "secret" and os.access(tmp_path / "secret", os.R_OK):
        pytest.skip("the superuser may read everything")
    with pytest.raises(DatasetError, match=what):
        open_dataset(name)
    for command in ("run", "doctor"):
        assert main([command, "--dataset", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_seven_scenes_has_every_recording(tmp_path: Path) -> None:
    counts = {
        name: len(s.recordings) for name, s in catalogue.families()["7scenes"].sequences.items()
    }
    assert counts == {
        "chess": 6, "fire": 4, "heads": 2, "office": 10, "pumpkin": 8, "redkitchen": 14,
        "stairs": 6,
    }  # fmt: skip
    entry = catalogue.find("7scenes/kitchen/seq-03")
    assert (entry.name, entry.recording) == ("7scenes/redkitchen/seq-03", "seq-03")
    assert entry.cache_folder() == tmp_path / "cache" / "7scenes" / "redkitchen"
    assert describe("7scenes/heads").recordings == ("seq-01", "seq-02")
    for number in (1, 3):
        folder = tmp_path / "kitchen" / f"seq-0{number}"
        folder.mkdir(parents=True)
        (folder / f"frame-00000{number}.depth.png").touch()
    for name, frame in (("7scenes/redkitchen", 1), ("7scenes/redkitchen/seq-03", 3)):
        with pytest.raises(DatasetError, match=f"frame-00000{frame}"):
            open_dataset(name, tmp_path / "kitchen")
    with pytest.raises(DatasetError, match="has no folder seq-02"):
        open_dataset("7scenes/redkitchen/seq-02", tmp_path / "kitchen")


def test_preset_of_the_family_goes_with_a_path(tmp_path: Path) -> None:
    (tmp_path / "kitchen" / "seq-01").mkdir(parents=True)
    assert run_defaults(["run", "--dataset", "kitchen"]).config == load_preset("7scenes")
    assert run_defaults(["run", "--dataset", str(tmp_path)]).config == load_preset("default")


def test_benchmark_folders_are_known_by_their_names(tmp_path: Path) -> None:
    camera = Camera(640, 480, 535.4, 539.2, 320.6, 248.1)
    place = write_tum(tmp_path / "rgbd_dataset_freiburg3_teddy", take(camera, 1), camera)
    (place / "camera.yaml").unlink()
    dataset = open_dataset(str(place))
    np.testing.assert_allclose(dataset.camera.matrix(), camera.matrix())
    renamed = place.rename(tmp_path / "teddy")
    with pytest.raises(DatasetError, match=r"teddy has no camera\.yaml"):
        open_dataset(str(renamed))
    assert open_dataset("tum/fr3_teddy", renamed).camera == dataset.camera


def test_bonn_poses_are_those_of_the_colour_camera(tmp_path: Path) -> None:
    """The publisher's T_ROS T_m, whose rotation has a scale of 1.059, moves markers to camera."""
    T_ros = np.array([[-1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    T_m = np.array(
        [
            [1.0157, 0.1828, -0.2389, 0.0113],
            [0.0009, -0.8431, -0.6413, -0.0098],
            [-0.3009, 0.6147, -0.8085, 0.0111],
            [0, 0, 0, 1],
        ]
    )
    camera = Camera(640, 480, 542.8, 542.6, 316.1, 238.3)
    shots = take(camera, 2)
    place = write_tum(tmp_path / "rgbd_bonn_static", shots, camera)
    (place / "camera.yaml").unlink()
    dataset = open_dataset("bonn/static", place)
    assert dataset.camera.fx == pytest.approx(542.82, abs=10)  # zoomed to what the lens saw
    for index, shot in enumerate(shots):
        pose = dataset[index].T_world_camera
        assert pose is not None
        T_markers_camera = np.linalg.inv(shot.T_world_camera) @ pose
        expected = T_ros @ T_m
        np.testing.assert_allclose(T_markers_camera[:3, 3], expected[:3, 3], atol=1e-6)
        np.testing.assert_allclose(T_markers_camera[:3, :3], expected[:3, :3] / 1.05929, atol=1e-3)


def test_run_eval_and_doctor_take_a_bag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    room_bag(take(SMALL, 4, 10.0)).write(tmp_path / "ros1.bag")
    preset = ["--preset", "cpu", "--device", "cpu"]
    assert main(["run", "--dataset", "ros1.bag", *preset]) == 0
    run = tmp_path / "runs" / "bag" / "ros1" / "latest"
    config, values = RunFolder(run).read_config()
    assert values["dataset"] == "bag/ros1"
    assert values["path"] == str(tmp_path / "ros1.bag")
    assert config == load_preset("cpu")
    assert main(["eval", str(run)]) == 0
    assert "ATE RMSE" in capsys.readouterr().out
    assert main(["doctor", "--dataset", "ros1.bag"]) in (0, 1)
    assert "cannot be opened" not in capsys.readouterr().out


def test_run_finds_replica_below_the_data_root(tmp_path: Path) -> None:
    write_replica(tmp_path / "Replica", take(SMALL, 2))
    arguments = ["--dataset", "replica/room0", "--data-root", str(tmp_path)]
    assert main(["run", *arguments, "--device", "cpu", "--out", "out"]) == 0
    _, values = RunFolder(tmp_path / "out").read_config()
    assert values["path"] == str(tmp_path / "Replica" / "room0")


def test_doctor_examines_every_new_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = write_folder(tmp_path / "scan", take(SMALL, 6))
    (place / "camera.yaml").write_text((place / "camera.yaml").read_text().replace("1000", "5"))
    assert main(["doctor", "--dataset", str(place)]) == 1
    assert "depth scale 5 makes the median depth" in " ".join(capsys.readouterr().out.split())


def test_list_names_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "list"]) == 0
    out = capsys.readouterr().out
    for name in (
        "replica/room0",
        "bonn/crowd3",
        "icl_nuim/office3n",
        "scannet",
        "record3d",
        "video",
    ):
        assert name in out
    assert main(["datasets", "show", "7scenes/chess"]) == 0
    assert "7scenes/chess/seq-06" in capsys.readouterr().out.replace("\n", "")
