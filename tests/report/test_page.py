"""The page about runs, in a browser: it moves, asks for nothing, and shows what the run says."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from gsslam.errors import ConfigError, DatasetError, OutputError
from gsslam.report.page import ReportOptions, distinct_names, write_report
from tests.browser import browser_page, screenshot

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser_page"]

TITLES = ("input", "render", "input depth", "rendered depth", "colour error")


@pytest.fixture(scope="module")
def page_of_one(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "one.html"
    assert write_report([small_run], out, ReportOptions(frames=5)) == []
    return out


@pytest.fixture(scope="module")
def page_of_two(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run twice, the second without its dataset and with another configuration."""
    folder = tmp_path_factory.mktemp("two")
    other = copy_of(small_run, folder / "other")
    text = (other / "config.yaml").read_text()
    text = text.replace("dataset: synthetic/room", "dataset: tum/fr1_desk")
    (other / "config.yaml").write_text(text.replace("low_pass: 0.3", "low_pass: 0.25"))
    (missing,) = write_report([small_run, other], folder / "two.html", ReportOptions(frames=5))
    assert missing.startswith(
        f"{folder.name}/other: input images are left out: tum/fr1_desk is not"
    )
    return folder / "two.html"


def copy_of(run: Path, to: Path) -> Path:
    shutil.copytree(run, to)
    return to


def watched(page: Page, path: Path) -> list[str]:
    """Open ``path``; return what the console says and what is requested, a list that grows."""
    events: list[str] = []

    def note_request(url: str) -> None:
        if url != path.as_uri() and not url.startswith("data:"):
            events.append(f"request: {url}")

    page.on("console", lambda message: events.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: events.append(f"error: {error}"))
    page.on("request", lambda request: note_request(request.url))
    page.goto(path.as_uri())
    return events


def move_to(page: Page, step: int) -> None:
    page.locator("#slider").focus()
    page.keyboard.press("Home")
    for _ in range(step):
        page.keyboard.press("ArrowRight")


def shown(page: Page) -> list[dict[str, Any]]:
    """The slides that can be seen: caption, and each image's title and size."""
    slides: list[dict[str, Any]] = page.evaluate(
        """() => [...document.querySelectorAll(".slide")].filter(s => s.offsetParent).map(s => ({
            caption: s.querySelector(".caption").textContent,
            images: [...s.querySelectorAll("img")].map(
                i => [i.nextElementSibling.textContent, i.naturalWidth, i.naturalHeight])
        }))"""
    )
    return slides


def test_the_slider_moves_the_images_and_the_plots(browser_page: Page, page_of_one: Path) -> None:
    problems = watched(browser_page, page_of_one)
    (first,) = shown(browser_page)
    assert first["caption"].startswith("frame 0, ")
    assert first["images"] == [[title, 96, 72] for title in TITLES]
    before = screenshot(browser_page)
    cursors = "[...document.querySelectorAll('g.cursor')].map(c => c.getBoundingClientRect().x)"
    places = [browser_page.evaluate(cursors)]
    for step in (2, 4):
        move_to(browser_page, step)
        places.append(browser_page.evaluate(cursors))
    (last,) = shown(browser_page)
    assert last["caption"].startswith("frame 11, ")
    assert last["caption"].endswith(", 0.37 s")
    # One cursor over the seconds, three over the frames; evenly spaced frames, so even steps.
    left, middle, right = np.array(places)
    assert left.shape == (4,)
    assert (right - left > 300).all()
    np.testing.assert_allclose((middle - left) / (right - left), 6 / 11, atol=0.02)
    assert np.abs(screenshot(browser_page).astype(int) - before).max() > 50
    assert problems == []


def test_cursors_reach_the_ends_of_their_axes(browser_page: Page, page_of_one: Path) -> None:
    browser_page.goto(page_of_one.as_uri())
    move_to(browser_page, 4)
    ends = browser_page.evaluate(
        """() => [...document.querySelectorAll("g.cursor")].map(c => {
            const background = c.parentElement.querySelector("[id*=patch_]");
            return [c.getBoundingClientRect().x, background.getBoundingClientRect().right];
        })"""
    )
    for cursor, end in ends:
        assert cursor == pytest.approx(end, abs=1.5)


def test_the_play_button_moves_the_slider(browser_page: Page, page_of_one: Path) -> None:
    browser_page.goto(page_of_one.as_uri())
    browser_page.click("#play")
    browser_page.get_by_text("3 of 5", exact=True).wait_for()
    browser_page.click("#play")
    assert browser_page.inner_text("#play") == "Play"


def test_the_table_says_what_metrics_json_says(
    browser_page: Page, page_of_one: Path, small_run: Path
) -> None:
    browser_page.goto(page_of_one.as_uri())
    cells = browser_page.evaluate(
        """() => [...document.querySelectorAll("#metrics tbody tr")].map(
            row => [...row.cells].map(cell => cell.textContent))"""
    )
    rows = {label: f"{value} {unit}" for label, value, unit in cells}
    metrics = json.loads((small_run / "metrics.json").read_text())
    assert rows["ATE RMSE, all frames"] == f"{metrics['ate_rmse_cm']:.2f} cm"
    assert rows["PSNR, all frames"] == f"{metrics['psnr_db']:.2f} dB"
    assert rows["spheres"] == f"{metrics['spheres']:,} "
    assert rows["peak memory of the run on the GPU"].startswith("- ")
    text = browser_page.inner_text("body")
    assert "synthetic/room" in text
    assert "ATE RMSE" in browser_page.inner_html("svg >> nth=1")


def test_runs_side_by_side(browser_page: Page, page_of_two: Path) -> None:
    problems = watched(browser_page, page_of_two)
    move_to(browser_page, 4)
    first, second = shown(browser_page)
    assert [image[0] for image in first["images"]] == list(TITLES)
    assert [image[0] for image in second["images"]] == ["render", "rendered depth"]
    assert first["caption"].split(",")[0] == second["caption"].split(",")[0] == "frame 11"
    differences = browser_page.inner_text("#differences")
    assert re.search(r"map\.low_pass\s+0\.3\s+0\.25", differences)
    assert "tum/fr1_desk is not on this computer" in browser_page.inner_text(".note")
    headers = browser_page.locator("#metrics th.number").all_inner_texts()
    assert len(headers) == len(set(headers)) == 2
    assert problems == []


def test_images_are_those_of_the_run(page_of_one: Path) -> None:
    text = page_of_one.read_text()
    uris = re.findall(
        r'<img src="data:image/webp;base64,([^"]+)" alt="([\w ]+) of frame (\d+)"', text
    )
    assert len(uris) == 5 * len(TITLES)
    images = {
        (title, int(frame)): cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), 1)
        for data, title, frame in uris
    }
    from gsslam import open_dataset

    room = open_dataset("synthetic/room", resolution=(96, 72), max_frames=12)
    for frame in (0, 11):
        given = room[frame].rgb[..., ::-1].astype(float)
        assert np.abs(images["input", frame] - given).mean() < 8
        assert np.abs(images["render", frame] - given).mean() < 20


def test_the_same_bytes_every_time_and_nothing_from_outside(
    small_run: Path, page_of_one: Path, tmp_path: Path
) -> None:
    write_report([small_run], tmp_path / "again.html", ReportOptions(frames=5))
    text = page_of_one.read_text()
    assert text == (tmp_path / "again.html").read_text()
    addresses = set(re.findall(r"\w+://[^\"' <]+", text))
    # Names of XML's vocabularies; nothing is fetched from there.
    vocabularies = ("http://www.w3.org/", "http://purl.org/", "http://creativecommons.org/")
    assert {
        a for a in addresses if not a.startswith((*vocabularies, "https://matplotlib.org"))
    } == set()
    assert "<script src" not in text
    assert "@import" not in text


def test_a_hostile_name_stays_text(small_run: Path, tmp_path: Path, browser_page: Page) -> None:
    run = copy_of(small_run, tmp_path / "<img src=x onerror=alert(1)>")
    write_report([run], tmp_path / "page.html", ReportOptions(frames=1))
    assert watched(browser_page, tmp_path / "page.html") == []
    assert "<img src=x onerror=alert(1)>" in browser_page.inner_text("h1")
    assert shown(browser_page)[0]["caption"].startswith("frame 0")


def test_a_run_without_ground_truth_or_evaluation(
    small_run: Path, tmp_path: Path, browser_page: Page
) -> None:
    run = copy_of(small_run, tmp_path / "run")
    (run / "ground_truth.txt").unlink()
    lines = [json.loads(line) for line in (run / "frames.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"position_error_cm": None, "psnr_db": None}
    lines[3]["status"] = "lost"
    (run / "frames.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_report([run], tmp_path / "page.html", ReportOptions(frames=12))
    assert watched(browser_page, tmp_path / "page.html") == []
    move_to(browser_page, 3)
    assert "lost" in shown(browser_page)[0]["caption"]
    svgs = " ".join(browser_page.locator("svg").all_text_contents())
    assert "there is no ground truth" in svgs
    assert "1 lost frames" in svgs


def test_unusable_runs_are_named(small_run: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "page.html", ReportOptions(frames=2)
    with pytest.raises(ConfigError, match="at least one run"):
        write_report([], out, options)
    with pytest.raises(ConfigError, match="--frames 0 must be"):
        write_report([small_run], out, ReportOptions(frames=0))
    with pytest.raises(DatasetError, match="is not the folder of a run"):
        write_report([tmp_path / "none"], out, options)
    run = copy_of(small_run, tmp_path / "run")
    (run / "map.ply").unlink()
    with pytest.raises(DatasetError, match="cannot read the map"):
        write_report([run], out, options)
    (run / "trajectory.txt").write_text("# nothing\n")
    with pytest.raises(DatasetError, match="is damaged: 12 frames but 0 poses"):
        write_report([run], out, options)
    with pytest.raises(OutputError, match="cannot write"):
        write_report([small_run], run / "config.yaml" / "page.html", options)
    assert not out.exists()


def test_names_tell_runs_apart() -> None:
    paths = [Path("/runs/tum/a"), Path("/runs/tum/b")]
    assert distinct_names(paths) == ["tum/a", "tum/b"]
    assert distinct_names([Path("/x/tum/a"), Path("/y/tum/a")]) == ["x/tum/a", "y/tum/a"]
    assert distinct_names([Path("/x/a"), Path("/x/a")]) == ["x/a (1)", "x/a (2)"]
    assert distinct_names([Path("/a")]) == ["a"]
