"""A page in a headless Chromium that draws without a GPU, and what it shows as arrays."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Page

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture
def browser_page() -> Iterator[Page]:
    """An empty page, 960 x 720; GSSLAM_CHROMIUM names another program than those usual."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    found = [os.environ.get("GSSLAM_CHROMIUM", ""), *map(shutil.which, _PROGRAMS)]
    program = next(filter(None, found), None)
    if program is None:
        pytest.skip("no Chromium found; set GSSLAM_CHROMIUM to its path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(_ARGUMENTS))
        page = browser.new_page(viewport={"width": 960, "height": 720})
        yield page
        browser.close()


def screenshot(page: Page) -> np.ndarray:
    """What the page shows, (H, W, 3) uint8."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return np.array(picture)
