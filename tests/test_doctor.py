"""``gsslam doctor`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from gsslam import native
from gsslam.cli import main
from gsslam.diagnosis import machine
from gsslam.errors import NativeError
from gsslam.losses import ImageLoss, LossWeights
from gsslam.recorder import FlightRecorder
from gsslam.run_folder import RunFolder


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_this_computer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = shown(capsys)
    for word in ("Python", "torch", "GPU", "native module", "threads", "self-test", "All is well."):
        assert word in text


def test_a_broken_computer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "_LEAST_DISK_GB", 1e9)
    assert main(["doctor"]) == 1
    text = shown(capsys)
    assert "bad disk" in text
    assert "disk: only" in text
    assert "All is well." not in text


def test_a_good_and_a_bad_dataset(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "--dataset", "synthetic/room"]) == 0
    assert "Nothing is wrong." in shown(capsys)
    Path("scan/rgb").mkdir(parents=True)
    assert main(["doctor", "--dataset", "folder", "--path", "scan"]) == 1
    text = shown(capsys)
    assert "opening" in text
    assert "cannot read scan/camera.yaml" in text


def fail_natively(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flight = FlightRecorder()
    monkeypatch.setattr(native, "recorder", flight)
    flight.set_context(step=7, map_version=2)
    image = torch.zeros(5, 4, 6)
    out = {"gradient": image.clone(), "error": image[0].clone()}
    loss = ImageLoss(LossWeights())
    loss.evaluate(image, image[:3], image[0], **out)
    with pytest.raises(NativeError):
        loss.evaluate(image, image[:2], image[0], **out)
    flight.write(path)


def test_a_run_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(Path("run"))
    fail_natively(folder.flight, monkeypatch)
    folder.metrics.write_text(json.dumps({"failure": "colour must be something else"}))
    assert main(["doctor", "run"]) == 1
    text = shown(capsys)
    assert text.startswith("The run stopped: colour must be something else")
    for word in ("ImageLoss.make", "ImageLoss.evaluate", "rendered 5x4x6, colour 3x4x6", "gain 1"):
        assert word in text
    assert "NativeError: ImageLoss.evaluate: colour must be" in text
    assert "MainThread 7 2 ImageLoss.evaluate cpu" in text
    assert "3 native operations" in text


def test_a_run_that_did_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--max-frames", "3", "--resolution", "48x36", "--preset", "fast", "--out", "run"]
    assert main(["run", *arguments]) == 0
    capsys.readouterr()
    assert main(["doctor", "run"]) == 0
    assert "The run on synthetic/room did not fail" in shown(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("doctor none", "none is not the folder of a run"),
        ("doctor run --dataset synthetic/room", "name one of the two"),
        ("doctor --path scan", "for a folder of your own: --dataset folder"),
        ("doctor --dataset nowhere/none", "unknown dataset 'nowhere/none'"),
        ("doctor --dataset folder --path none", "the folder none does not exist"),
        ("doctor --dataset folder", "pass its folder with --path"),
        ("doctor --dataset tum/fr1_desk", "tum/fr1_desk is not on this computer"),
        ("doctor bad", "bad/flight.jsonl is damaged"),
    ],
)
def test_known_errors_are_one_line_and_status_2(
    arguments: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("GSSLAM_DATA_HOME", str(tmp_path / "cache"))
    Path("bad").mkdir()
    Path("bad/flight.jsonl").write_text("{")
    assert main(arguments.split()) == 2
    text = capsys.readouterr().err
    assert text.startswith("gsslam: ")
    assert text.count("\n") == 1
    assert message in text
