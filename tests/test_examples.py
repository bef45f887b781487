"""The numbered examples run as a user runs them, and the page that walks through them is whole."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import gsslam
from gsslam import Trajectory
from gsslam.export import read_ply

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE = (ROOT / "docs" / "python_api.md").read_text(encoding="utf-8")


def output_of(number: int, out: Path) -> str:
    """Run an example from another folder; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES[number - 1]), str(out)],
        cwd=out.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found is not None, text
    return [float(group) for group in found.groups()]


def test_run_slam(tmp_path: Path) -> None:
    text = output_of(1, tmp_path / "out")
    assert numbers(r"lost_frames: (\d+)", text) == [0]
    assert numbers(r"ate_rmse_cm: (\S+) cm", text)[0] < 0.5
    assert numbers(r"psnr_db: (\S+) dB", text)[0] > 26
    assert len(Trajectory.read(tmp_path / "out" / "trajectory.txt")) == 12


def test_own_frames(tmp_path: Path) -> None:
    text = output_of(2, tmp_path / "out")
    assert "lost" not in text
    assert text.endswith("6 poses; the first camera is the world's origin\n")
    last = numbers(r"frame 5 at \((\S+), (\S+), (\S+)\) m", text)
    truth = gsslam.open_dataset("synthetic/room", resolution=(96, 72), max_frames=6)
    first, true_last = truth[0].T_world_camera, truth[5].T_world_camera
    assert first is not None
    assert true_last is not None
    expected = (np.linalg.inv(first) @ true_last)[:3, 3]
    assert np.linalg.norm(expected - last) < 0.01


def test_render_views(tmp_path: Path) -> None:
    text = output_of(3, tmp_path / "out")
    assert numbers(r"covers (\d+) %", text)[0] > 60
    colour = cv2.imread(str(tmp_path / "out" / "colour.png"))
    depth = cv2.imread(str(tmp_path / "out" / "depth.png"), cv2.IMREAD_UNCHANGED)
    assert colour is not None
    assert depth is not None
    assert colour.shape == (120, 160, 3)
    assert colour.std() > 20
    assert 1000 < np.median(depth[depth > 0]) < 5000


def test_evaluate(tmp_path: Path) -> None:
    text = output_of(4, tmp_path / "out")
    assert numbers(r"ATE RMSE (\S+) cm", text)[0] < 1.5
    assert numbers(r"frame 7 \(held out\): PSNR (\S+) dB, SSIM (\S+)", text)[0] > 22


def test_export_map(tmp_path: Path) -> None:
    text = output_of(5, tmp_path / "out")
    count, covered = numbers(r"(\d+) spheres cover (\d+) %", text)
    assert covered > 80
    assert len(read_ply(tmp_path / "out" / "map.ply")) == count
    assert len(Trajectory.read(tmp_path / "out" / "trajectory.txt")) == 6


def test_differentiate(tmp_path: Path) -> None:
    text = output_of(6, tmp_path / "out")
    (first,) = numbers(r"step 0: (\S+) cm", text)
    (last,) = numbers(r"step 60: (\S+) cm", text)
    assert last < 0.2 * first


@pytest.mark.slow
def test_query_map(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra features is not installed")
    text = output_of(7, tmp_path / "out")
    itself, view = numbers(r"to itself (\S+), of the view (\S+)", text)
    assert itself > 0.6 > view + 0.2
    assert cv2.imread(str(tmp_path / "out" / "query.png")) is not None


def test_every_example_is_short_tested_and_on_the_page() -> None:
    for number, path in enumerate(EXAMPLES, start=1):
        text = path.read_text(encoding="utf-8")
        assert path.name.startswith(f"{number:02d}_")
        assert len(text.splitlines()) < 60
        assert f"(../examples/{path.name})" in PAGE
        assert f"output_of({number}, " in inspect.getsource(sys.modules[__name__])


def test_the_page_names_all_that_is_public() -> None:
    names = set(re.findall(r"`(\w+)`", PAGE))
    assert set(gsslam.__all__) <= names
