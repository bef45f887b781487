"""The pictures of the page on how it works."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import pytest

from scripts import documentation_pictures

DOCS = Path(__file__).parents[2] / "docs"
NAMES = {"spheres.jpg", "tracking.jpg", "growing_map.jpg", "threads.png"}


@pytest.mark.slow
def test_they_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["", "--out", str(tmp_path), "--width", "80", "--height", "60"]
    monkeypatch.setattr("sys.argv", arguments)
    documentation_pictures.main()
    assert {path.name for path in tmp_path.iterdir()} == NAMES
    for path in tmp_path.iterdir():
        picture = cv2.imread(str(path))
        assert picture is not None
        assert picture.std() > 20


def test_the_page_shows_them_all() -> None:
    page = (DOCS / "how_it_works.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(images/([^)]+)\)", page)) == NAMES
