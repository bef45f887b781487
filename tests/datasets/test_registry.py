import subprocess
import sys
from pathlib import Path

import pytest

from gsslam.datasets import catalogue, open_dataset
from gsslam.datasets.registry import describe, list_datasets
from gsslam.errors import DatasetError


def test_catalogue_holds_the_whole_benchmarks() -> None:
    names = [info.name for info in list_datasets()]
    assert len(set(names)) == len(names)
    counts = {f"fr{i}": sum(name.startswith(f"tum/fr{i}_") for name in names) for i in (1, 2, 3)}
    assert counts == {"fr1": 9, "fr2": 18, "fr3": 20}
    assert sum(name.startswith("7scenes/") for name in names) == 7
    assert {"synthetic/room", "synthetic/room_noisy", "tum/fr2_large_no_loop"} <= set(names)


def test_every_tum_url_follows_the_publisher() -> None:
    for name, sequence in catalogue.families()["tum"].sequences.items():
        number, what = name[2], name[4:]
        assert sequence.url == (
            f"https://cvg.cit.tum.de/rgbd/dataset/freiburg{number}/"
            f"rgbd_dataset_freiburg{number}_{what}.tgz"
        )
        sensor = catalogue.find(f"tum/{name}").sensor()
        assert sensor.depth_scale == 5000
        assert sensor.depth is None
        assert sensor.colour.is_distorted == (number != "3")
        assert sensor.colour.camera.fx == {"1": 517.3, "2": 520.9, "3": 535.4}[number]


def test_alias_leads_to_the_sequence() -> None:
    assert describe("tum/fr3_office").name == "tum/fr3_long_office_household"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tum/fr1_dsk", "tum/fr1_desk"),
        ("fr1_xyz", "tum/fr1_xyz"),
        ("7scenes/kitchn", "7scenes/kitchen"),
        ("synthetic/rom", "synthetic/room"),
    ],
)
def test_unknown_name_lists_near_ones(name: str, near: str) -> None:
    with pytest.raises(DatasetError, match=f"unknown dataset .*did you mean .*{near}"):
        open_dataset(name)


def test_quite_unknown_name_points_to_the_list() -> None:
    with pytest.raises(DatasetError, match="gsslam datasets list"):
        open_dataset("zzzz")


def test_absent_dataset_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSSLAM_DATA_HOME", str(tmp_path))
    info = describe("tum/fr1_desk")
    assert (info.folder, info.is_available) == (tmp_path / "tum" / "fr1_desk", False)
    with pytest.raises(
        DatasetError, match=r"run `gsslam datasets download tum/fr1_desk`, or pass .* --path"
    ):
        open_dataset("tum/fr1_desk")
    with pytest.raises(DatasetError, match="nowhere does not exist"):
        open_dataset("tum/fr1_desk", tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="pass its folder with --path"):
        open_dataset("folder")
    with pytest.raises(DatasetError, match="nowhere does not exist"):
        open_dataset("folder/nowhere")
    info.folder.mkdir(parents=True)
    assert describe("tum/fr1_desk").is_available
    with pytest.raises(DatasetError, match=r"cannot read .*fr1_desk/rgb\.txt"):
        open_dataset("tum/fr1_desk")


def test_loaders_are_imported_when_chosen() -> None:
    loaders = {f"gsslam.datasets.{f.loader}" for f in catalogue.families().values()}
    assert len(loaders) == 10
    code = (
        "import sys; from gsslam.datasets import open_dataset; loaders = "
        f"{loaders | {'rosbags', 'mcap', 'lzfse', 'OpenEXR'}};"
        "assert not loaders & set(sys.modules); open_dataset('synthetic/room');"
        "assert loaders & set(sys.modules) == {'gsslam.datasets.synthetic'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_broken_catalogue_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("title: X\nloader: tum\nsequences: {a: {abaut: text}}\n")
    with pytest.raises(DatasetError, match=r"x\.yaml: sequences\.a\.abou?t: "):
        catalogue.read_yaml(tmp_path / "x.yaml", catalogue.Family)
