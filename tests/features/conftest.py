from __future__ import annotations

import pytest

from gsslam.run_folder import RunFolder
from tests.features.small_run import LEARNING, start


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with features, never interrupted; not to be changed."""
    pytest.importorskip("safetensors")
    return start(tmp_path_factory.mktemp("features") / "run", LEARNING)
