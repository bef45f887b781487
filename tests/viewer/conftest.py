from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gsslam.observer import Observer
from gsslam.run import RunOptions, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.viewer import LiveViewer
from tests.browser import browser_page
from tests.small_room import CONFIG

__all__ = ["browser_page"]

pytest.importorskip("viser", reason="needs viser")

SOURCE = Source("synthetic/room", resolution=(160, 120), max_frames=10)


def run_room(out: Path, observer: Observer | None = None) -> RunFolder:
    options = RunOptions("cpu")
    config = replace(CONFIG, seed=SOURCE.seed)
    run_dataset(SOURCE.open(), config, out, options=options, source=SOURCE, observer=observer)
    return RunFolder(out)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that nobody watched."""
    return run_room(tmp_path_factory.mktemp("room") / "run")


@pytest.fixture
def viewer() -> Iterator[LiveViewer]:
    """A viewer on any free port."""
    with LiveViewer(port=0) as viewer:
        yield viewer
