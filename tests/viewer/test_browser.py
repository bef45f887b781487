"""What a person sees in the browser is what our own rendering shows from the same camera."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest

from gsslam.export.ply import read_ply
from gsslam.run_folder import RunFolder
from gsslam.trajectory import Trajectory
from gsslam.viewer import LiveViewer, Playback
from gsslam.viewer.layers import DEPTH
from gsslam.viewer.spheres import Spheres
from tests.browser import screenshot
from tests.viewer.conftest import SOURCE, run_room

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Of the page (720, 960): beside the panel, and under viser's note on drawing without a GPU.
_FREE = (slice(200, 720), slice(0, 610))
_SECONDS = 60


def rendering(folder: RunFolder, position: int) -> np.ndarray:
    """The map at a frame's pose, as large as the page, uint8."""
    spheres = Spheres.of_state(read_ply(folder.map))
    camera = SOURCE.open().camera.resized(960, 720)
    pose = Trajectory.read(folder.trajectory).T_world_camera[position]
    colour = spheres.view(camera, pose, low_pass=0.3).colour
    return (255 * np.clip(colour, 0, 1)).astype(np.uint8)


def likeness(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of two images where the page shows the map, fine detail left out."""
    flat = [
        cv2.GaussianBlur(image[_FREE].astype(np.float32), (0, 0), 3).ravel() for image in (a, b)
    ]
    return float(np.corrcoef(*flat)[0, 1]) if min(map(np.std, flat)) > 0 else 0.0


def wait_for(page: Page, good: Callable[[np.ndarray], bool]) -> np.ndarray:
    """The first screenshot that is good, or the last one before time is up."""
    end = time.monotonic() + _SECONDS
    while True:
        shot = screenshot(page)
        if good(shot) or time.monotonic() > end:
            return shot
        page.wait_for_timeout(500)


def follow(page: Page) -> None:
    page.get_by_text("Follow the camera").wait_for(timeout=1000 * _SECONDS)
    page.get_by_label("Follow the camera").check(force=True, timeout=5000)


@pytest.mark.slow
def test_a_watched_run_shows_its_map_and_has_the_same_bytes(
    run_folder: RunFolder, viewer: LiveViewer, browser_page: Page, tmp_path: Path
) -> None:
    browser_page.goto(viewer.address)
    watched = run_room(tmp_path / "watched", viewer)
    for name in ("trajectory", "map", "compact_map"):
        ours, theirs = getattr(run_folder, name), getattr(watched, name)
        assert ours.read_bytes() == theirs.read_bytes(), name
    follow(browser_page)
    expected = rendering(watched, -1)
    shot = wait_for(browser_page, lambda shot: likeness(shot, expected) > 0.9)
    assert likeness(shot, expected) > 0.9
    assert likeness(shot, expected[:, ::-1]) < 0.6
    assert likeness(shot, expected[::-1]) < 0.6
    for text in ("synthetic/room", "frames/s", "ATE RMSE so far", "memory counted"):
        assert browser_page.get_by_text(text).count(), text
    with Playback.open(run_folder.path, port=0) as playback:
        check_playback(playback, run_folder, browser_page)


def check_playback(playback: Playback, folder: RunFolder, page: Page) -> None:
    page.goto(playback.address)
    follow(page)
    playback.show(2)
    expected = rendering(folder, 2)
    shot = wait_for(page, lambda shot: likeness(shot, expected) > 0.9)
    assert likeness(shot, expected) > 0.9
    page.get_by_role("combobox").first.click(timeout=5000)
    page.get_by_role("option", name=DEPTH).click(timeout=5000)
    other = wait_for(page, lambda shot: likeness(shot, expected) < 0.5)
    assert likeness(other, expected) < 0.5
    assert other[_FREE].std() > 20
