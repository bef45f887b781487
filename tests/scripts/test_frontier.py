"""Speed against accuracy: settings of a file, run once, drawn and put into a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsslam.errors import ConfigError, OutputError
from scripts import frontier


def make_options(folder: Path, **changes: object) -> frontier.Options:
    settings = folder / "settings.yaml"
    settings.write_text("fast: {preset: fast}\nfaster: {config: {mapping: {iterations: 2}}}\n")
    values = {"dataset": "synthetic/room", "resolution": "48x36", "max_frames": 6, **changes}
    return frontier.Options(path=folder, out=folder / "out", settings=settings, **values)


def test_the_shipped_settings_are_valid(tmp_path: Path) -> None:
    settings = frontier.load_settings(frontier.Options(path=tmp_path))
    configurations = {name: setting.configuration(0) for name, setting in settings.items()}
    assert configurations["cpu, a keyframe in 6"].keyframes.max_interval == 6
    assert configurations["fast, 4,800 pixels"].tracking.max_pixels == 4800
    with pytest.raises(ConfigError, match="has no setting 'slow'"):
        frontier.load_settings(make_options(tmp_path, only=("slow",)))


def test_settings_are_run_once(tmp_path: Path) -> None:
    options = make_options(tmp_path, repeats=2)
    settings = frontier.load_settings(options)
    points = frontier.run_settings(settings, options)
    assert frontier.run_settings(settings, options) == points
    table = frontier.markdown_table(points).splitlines()
    assert len(table) == 4
    assert table[0].startswith("| setting | frames/s | processor, ms a frame | ATE RMSE, cm |")
    frontier.plot_frontier(points, tmp_path / "plot.png", "two settings")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    other = make_options(tmp_path, only=("faster",))
    other.settings.write_text("faster: {config: {mapping: {iterations: 3}}}")
    with pytest.raises(OutputError, match="another configuration: delete it"):
        frontier.run_settings(frontier.load_settings(other), other)
