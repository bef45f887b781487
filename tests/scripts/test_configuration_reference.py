"""The reference of the configuration is up to date, and says what holds."""

from __future__ import annotations

from dataclasses import asdict

from gsslam import SlamConfig
from gsslam.config import DensifyConfig, TrackingConfig
from scripts.configuration_reference import PAGE, comments, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_value_has_a_row_with_a_comment() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]
    described = {row[0].strip("|` "): row[-1].strip("| ") for row in rows if len(row) == 4}
    expected = {"seed"}
    for section, values in asdict(SlamConfig()).items():
        if isinstance(values, dict):
            expected |= {f"{section}.{name}" for name in values}
    assert set(described) == expected
    assert all(len(text) > 10 for text in described.values())


def test_ranges_and_continued_comments() -> None:
    text = page()
    assert "| `tracking.levels` | 3 | integer ≥ 1, ≤ 5 |" in text
    assert "| `densify.opacity` | 0.9 | number > 0, < 1 |" in text
    assert "| `map.capacity` | 200,000 | integer ≥ 1 |" in text
    assert comments(TrackingConfig)["max_pixels"].endswith("A GPU takes all of them anyway.")
    assert comments(DensifyConfig)["opacity"] == "Opacity of a new sphere."
