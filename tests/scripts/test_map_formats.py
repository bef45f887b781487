"""The table of the map's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsslam.presets import load_preset
from gsslam.run import run_dataset
from gsslam.source import Source
from scripts import map_formats


def test_every_format_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Source("synthetic/room", resolution=(64, 48), max_frames=9)
    run_dataset(source.open(), load_preset("synthetic"), tmp_path / "run", source=source)
    monkeypatch.setattr("sys.argv", ["map_formats", "--run", str(tmp_path / "run"), "--every", "4"])
    map_formats.main()
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["map.ply", "map.npz", "map.spz"]
    full, compact, spz = (float(row[4].split("/")[0]) for row in rows)
    assert abs(compact - full) < 0.05
    assert abs(spz - full) < 0.5
    assert float(rows[1][3]) < 0.25 * float(rows[0][3])
