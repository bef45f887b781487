import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real sequences: GSSLAM_DATA, else ../shared/data beside the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GSSLAM_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real sequences at {folder}; set GSSLAM_DATA to their folder")
    return folder
