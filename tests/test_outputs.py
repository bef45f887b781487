"""``gsslam report``, ``export`` and ``render`` as a user types them; what they refuse."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import gsply
import numpy as np
import pytest

from gsslam.cli import main
from gsslam.errors import OutputError
from gsslam.export import read_compact, read_ply
from gsslam.finished_run import FinishedRun
from gsslam.movie import write_movie
from gsslam.rendering import MapRenderer
from tests.browser import browser_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser_page"]

FORMATS = {
    "ply": "map.ply",
    "compact": "map.npz",
    "spz": "map.spz",
    "mesh": "mesh.ply",
    "pointcloud": "points.ply",
    "colmap": "colmap",
}


@pytest.fixture
def run(small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_run, "run")
    return Path("run")


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_lands_in_the_run_folder(
    format_name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if format_name == "mesh":
        pytest.importorskip("open3d", reason="needs the extra mesh", exc_type=ImportError)
    before = files_in(run)
    assert main(["export", "run", "--format", format_name, "--views", "4", "--voxel", "0.05"]) == 0
    shown = capsys.readouterr()
    target = run / "export" / FORMATS[format_name]
    assert shown.out.rstrip().endswith(f"in {target}")
    assert target.exists()
    after = files_in(run)
    assert {name: after[name] for name in before} == before
    assert all(name.startswith(f"export/{FORMATS[format_name]}") for name in after.keys() - before)
    again = Path("again") / FORMATS[format_name]
    arguments = ["--format", format_name, "--views", "4", "--voxel", "0.05", "--out", str(again)]
    assert main(["export", "run", *arguments]) == 0
    as_files = [files_in(p) if p.is_dir() else p.read_bytes() for p in (target, again)]
    assert as_files[0] == as_files[1]


def test_splats_are_those_of_the_map(run: Path) -> None:
    for name in ("ply", "compact", "spz"):
        assert main(["export", "run", "--format", name]) == 0
    state = read_ply(run / "map.ply")
    again = read_ply(run / "export" / "map.ply")
    np.testing.assert_allclose(again.columns(), state.columns(), atol=1e-6)
    assert len(read_compact(run / "export" / "map.npz")) == len(state)
    assert len(gsply.read_spz(run / "export" / "map.spz").means) == len(state)


def test_help_lists_the_formats_and_the_paths(capsys: pytest.CaptureFixture[str]) -> None:
    for command, words in (
        ("export", [*FORMATS, "--views", "gsslam export runs/"]),
        ("render", ["orbit", "trajectory", "FILE", "gsslam render runs/"]),
        ("report", ["RUN [RUN ...]", "--frames", "gsslam report runs/"]),
    ):
        with pytest.raises(SystemExit) as caught:
            main([command, "--help"])
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert all(word in text for word in words)


def frames_of(path: Path) -> list[np.ndarray]:
    capture = cv2.VideoCapture(str(path))
    frames = []
    while True:
        there, frame = capture.read()
        if not there:
            capture.release()
            return frames
        frames.append(frame[..., ::-1])


def test_a_film_shows_the_map(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--path", "trajectory", "--resolution", "128x96", "--fps", "30"]
    assert main(["render", "run", *arguments]) == 0
    target = run / "export" / "trajectory.mp4"
    assert capsys.readouterr().out == f"11 images in {target}\n"
    frames = frames_of(target)
    assert len(frames) == 11
    finished = FinishedRun.read(run)
    renderer = MapRenderer(finished.spheres(), finished.config.map.low_pass)
    camera = finished.camera().resized(128, 96)
    view = renderer.render(finished.trajectory.T_world_camera[5], camera).colour
    assert np.abs(frames[5] - 255 * np.clip(view, 0, 1)).mean() < 12
    assert frames[0].std() > 30
    assert main(["render", "run", *arguments, "--out", "again.mp4"]) == 0
    assert Path("again.mp4").read_bytes() == target.read_bytes()


def test_a_browser_plays_the_film(run: Path, browser_page: Page) -> None:
    assert main(["render", "run", "--seconds", "0.5", "--out", "film.mp4"]) == 0
    Path("page.html").write_text('<video id="film" src="film.mp4"></video>')
    browser_page.goto(Path("page.html").resolve().as_uri())
    browser_page.wait_for_function("film.readyState >= 2 || film.error")
    assert browser_page.evaluate("[film.duration, film.videoWidth, film.videoHeight]") == [
        0.5,
        96,
        72,
    ]


def test_images_in_a_folder_along_a_file_of_poses(run: Path) -> None:
    Path("poses.txt").write_text("0 0 0 0 0 0 0 1\n1 0.1 0 0 0 0 0 1\n")
    arguments = ["--path", "poses.txt", "--fps", "4", "--out", "images"]
    assert main(["render", "run", *arguments]) == 0
    names = sorted(path.name for path in Path("images").iterdir())
    assert names == [f"{i:06d}.png" for i in range(4)]
    first, last = (cv2.imread(f"images/{name}") for name in (names[0], names[-1]))
    assert first.shape == (72, 96, 3)
    assert np.abs(first.astype(int) - last).mean() > 3


def test_the_dataset_is_not_needed_to_render(run: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("dataset: synthetic/room", "dataset: tum/gone"))
    assert main(["render", "run", "--seconds", "0.1", "--out", "images"]) == 0
    assert main(["export", "run", "--format", "pointcloud"]) == 0


def test_runs_of_earlier_versions_ask_the_dataset_for_the_camera(run: Path) -> None:
    lines = (run / "config.yaml").read_text().splitlines(keepends=True)
    start = lines.index("  camera:\n")
    (run / "config.yaml").write_text("".join(lines[:start]))
    (run / "ground_truth.txt").unlink()
    assert FinishedRun.read(run).camera() == FinishedRun.read(run).source.open().camera
    assert len(FinishedRun.read(run).compared()[1]) == 0
    assert main(["render", "run", "--seconds", "0.1", "--out", "images"]) == 0
    assert main(["report", "run", "--frames", "2"]) == 0
    assert "the true path is left out" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("report", "report needs the folder of at least one run"),
        ("report none", "none is not the folder of a run"),
        ("report run none", "none is not the folder of a run"),
        ("report run --frames 0", "--frames 0 must be from 1 to 500"),
        ("report run --out file/page.html", "cannot write file/page.html"),
        ("report broken", "broken/map.ply is no Gaussian splat PLY file"),
        ("export none", "none is not the folder of a run"),
        ("export file", "file is not the folder of a run"),
        ("export broken", "broken/map.ply is no Gaussian splat PLY file"),
        ("export mapless --format pointcloud", "cannot read the map mapless/map.ply: No such file"),
        ("export mapless --format colmap", "cannot read the map mapless/map.ply: No such file"),
        ("export lost --format pointcloud", "has no frame that was tracked"),
        ("export run --views 0", "--views 0 must be at least 1"),
        ("export run --format mesh --voxel 0", "--voxel 0.0 must be a positive"),
        ("export run --format mesh --max-depth -1", "--max-depth -1.0 must be a positive"),
        ("export run --out file/map.ply", "cannot write file/map.ply"),
        ("export run --format compact --out file/map.npz", "cannot write file/map.npz"),
        ("export run --format spz --out file/map.spz", "cannot write file/map.spz"),
        ("export run --format colmap --out full", "full exists already"),
        ("export run --format colmap --out file", "file exists already"),
        ("export run --format colmap --out file/below", "cannot write file/below"),
        ("export moved --format colmap", "tum/fr1_desk is not on this computer"),
        ("export cameraless --format pointcloud", "cameraless/config.yaml has no usable camera"),
        ("render none", "none is not the folder of a run"),
        ("render mapless", "cannot read the map mapless/map.ply"),
        ("render run --path none.txt", "--path none.txt is neither orbit nor trajectory"),
        ("render run --path file", "file, line 1: expected 8 numbers"),
        ("render run --path empty.txt", "the camera path empty.txt has no poses"),
        ("render run --path one.txt", "needs at least two poses at different times"),
        ("render run --path nan.txt", "nan.txt, line 1: the pose is NaN or infinite"),
        ("render run --fps 0", "--fps 0 must be from 1 to 240"),
        ("render run --seconds -1", "--seconds -1 must be positive"),
        ("render run --seconds 1e9", "are 30,000,000,000 frames"),
        ("render run --resolution 9", "resolution '9' must be width x height"),
        ("render run --out film.avi", "--out film.avi must end in .mp4"),
        ("render run --out file/film.mp4", "cannot write file/film.mp4"),
        ("render run --seconds 0.1 --out full", "full exists already"),
        ("render run --seconds 0.1 --out file/images", "cannot write file/images"),
    ],
)
def test_known_errors_are_one_line_and_status_2(
    arguments: str, message: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/file").write_text("mine")
    Path("empty.txt").write_text("# timestamp\n")
    Path("one.txt").write_text("0 0 0 0 0 0 0 1\n")
    Path("nan.txt").write_text("0 nan 0 0 0 0 0 1\n1 0 0 0 0 0 0 1\n")
    for name in ("broken", "mapless", "lost", "moved", "cameraless"):
        shutil.copytree(run, name)
    header, data = (run / "map.ply").read_bytes().split(b"end_header\n", 1)
    Path("broken/map.ply").write_bytes(header + b"end_header\n" + data[: len(data) // 2])
    Path("mapless/map.ply").unlink()
    frames = Path("lost/frames.jsonl")
    frames.write_text(frames.read_text().replace('"tracked"', '"lost"'))
    for name, old, new in (
        ("moved", "dataset: synthetic/room", "dataset: tum/fr1_desk"),
        ("cameraless", "fx:", "focal_length:"),
    ):
        config = Path(name, "config.yaml")
        config.write_text(config.read_text().replace(old, new))
    before = files_in(Path())
    assert main(arguments.split()) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gsslam: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err
    assert files_in(Path()) == before


def test_what_is_not_installed_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, extra, format_name in (("open3d", "mesh", "mesh"), ("gsply", "spz", "spz")):
        monkeypatch.setitem(sys.modules, module, None)
        assert main(["export", "run", "--format", format_name]) == 2
        error = capsys.readouterr().err
        assert f"needs {module}" in error
        assert f"pip install 'gsslam[{extra}]'" in error
    assert not (run / "export").exists()


def test_a_film_that_stops_midway_leaves_no_file(tmp_path: Path) -> None:
    def images() -> Iterator[np.ndarray]:
        yield np.zeros((32, 32, 3), np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_movie(tmp_path / "film.mp4", images(), (32, 32), 30)
    # OpenCV leaves out images of another size without a word.
    wrong = [np.zeros((16, 16, 3), np.uint8)] * 3
    with pytest.raises(OutputError, match="the film is incomplete"):
        write_movie(tmp_path / "film.mp4", wrong, (32, 32), 30)
    assert list(tmp_path.iterdir()) == []
