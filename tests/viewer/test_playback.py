"""A finished run in the browser: what is read, and how it begins and ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import gsslam
from gsslam.cli import main
from gsslam.errors import DatasetError
from gsslam.run_folder import RunFolder
from gsslam.viewer import Playback


def folder_bytes(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_ctrl_c_ends_it_cleanly_and_nothing_was_changed(run_folder: RunFolder) -> None:
    before = folder_bytes(run_folder.path)
    command = [sys.executable, "-m", "gsslam", "view", str(run_folder.path), "--viewer-port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(gsslam.__file__).parents[1])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.split(" is shown at ")[1].split(";")[0]
        with urllib.request.urlopen(address, timeout=20) as page:
            assert b"<html" in page.read().lower()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out.strip(), err) == (0, "", "")
    assert folder_bytes(run_folder.path) == before


def test_without_the_dataset_there_is_the_map_at_least(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(run_folder.path, moved)
    config = RunFolder(moved).config
    text = config.read_text().replace("dataset: synthetic/room", "dataset: tum/fr1_xyz")
    config.write_text(text)
    with Playback.open(moved, dataset_path=tmp_path / "gone", port=0) as playback:
        assert "does not exist" in playback.problem
        picture = playback._image_of(0)
    with Playback.open(run_folder.path, port=0) as playback:
        assert playback.problem == ""
        photo = playback._image_of(0)
    assert picture.shape == photo.shape
    assert picture.std() > 20


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: folder.map.unlink(), "cannot read the map"),
        (lambda folder: folder.map.write_bytes(b"ply\nnonsense"), "is no Gaussian splat PLY"),
        (lambda folder: folder.frames.write_text(""), "frames and poses differ"),
        (lambda folder: folder.trajectory.unlink(), "cannot read trajectory"),
        (lambda folder: folder.config.write_text("run: 3"), "not a run's file"),
    ],
)
def test_damaged_folders(
    run_folder: RunFolder, tmp_path: Path, spoil: object, message: str
) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(run_folder.path, spoilt)
    assert callable(spoil)
    spoil(RunFolder(spoilt))
    with pytest.raises(DatasetError, match=message):
        Playback.open(spoilt, port=0)


def test_known_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["view", str(tmp_path)]) == 2
    assert "is not the folder of a run" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "viser", None)
    assert main(["run", "--viewer"]) == 2
    shown = capsys.readouterr().err
    assert "the viewer needs viser" in shown
    assert "pip install 'gsslam[viewer]'" in shown
    assert shown.count("\n") == 1


def test_error_and_score_of_a_map_file_are_not_known(run_folder: RunFolder) -> None:
    with Playback.open(run_folder.path, port=0) as playback:
        assert tuple(playback._scene._layer.options) == ("colour", "depth", "error")
        playback.show(3)
        assert np.array_equal(playback._image_of(3), playback._image_of(3))
