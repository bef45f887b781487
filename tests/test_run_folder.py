"""The folder of a run: where it may be, and what it is called."""

from pathlib import Path

import pytest

from gsslam.config import SlamConfig
from gsslam.errors import ConfigError, OutputError
from gsslam.report import Progress
from gsslam.run import run_dataset
from gsslam.run_folder import new_run_path, point_latest_to
from gsslam.source import Source
from tests.oracle_slam import OracleSlam

ROOM = Source("synthetic/room", resolution=(48, 36), max_frames=17)


def test_folders_with_content_are_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        run_dataset(ROOM.open(), SlamConfig(), tmp_path, slam_factory=OracleSlam)
    assert [path.name for path in tmp_path.rglob("*")] == ["keep.txt"]


def test_unwritable_output_is_found_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    started: list[Progress] = []
    with pytest.raises(OutputError, match=r"cannot write to .*: Not a directory"):
        run_dataset(
            *(ROOM.open(), SlamConfig(), tmp_path / "file" / "run"),
            on_progress=started.append,
            slam_factory=OracleSlam,
        )
    assert started == []


def test_run_folders_get_names_of_their_own_and_a_link_to_the_newest(tmp_path: Path) -> None:
    first = new_run_path(tmp_path, "tum/fr1_xyz")
    first.mkdir(parents=True)
    point_latest_to(first)
    second = new_run_path(tmp_path, "tum/fr1_xyz")
    second.mkdir(parents=True)
    assert first != second
    point_latest_to(second)
    latest = tmp_path / "tum" / "fr1_xyz" / "latest"
    assert latest.is_symlink()
    assert latest.resolve() == second.resolve()
    assert sorted(p.name for p in latest.parent.iterdir()) == sorted(
        [first.name, second.name, "latest"]
    )
