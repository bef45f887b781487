from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.datasets.recordings import SMALL, START, Shot, take

CAMERA = """width: 32
height: 24
fx: 30
fy: 30
cx: 15.5
cy: 11.5
depth_scale: 1000
"""


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write a small folder dataset of flat scenes: depth 1 m + 0.1 m a frame."""

    def make(
        names: tuple[str, ...] = ("1.png", "2.png", "10.png"),
        camera: str = CAMERA,
        depth_scale: float = 1000,
    ) -> Path:
        folder = tmp_path / "recording"
        for kind in ("rgb", "depth"):
            (folder / kind).mkdir(parents=True)
        for index, name in enumerate(names):
            colour = np.full((24, 32, 3), (10 * index, 50, 200), dtype=np.uint8)  # BGR
            depth = np.full((24, 32), round((1 + 0.1 * index) * depth_scale), dtype=np.uint16)
            assert cv2.imwrite(str(folder / "rgb" / name), colour)
            assert cv2.imwrite(str(folder / "depth" / name), depth)
        (folder / "camera.yaml").write_text(camera)
        return folder

    return make


@pytest.fixture(scope="session")
def fr1_xyz(data_root: Path) -> Path:
    """TUM's freiburg1_xyz, the whole sequence."""
    return real_folder(data_root / "tum_fr1_xyz")


@pytest.fixture(scope="session")
def kitchen(data_root: Path) -> Path:
    """300 frames of 7-Scenes' RedKitchen."""
    return real_folder(data_root / "seven_scenes_redkitchen")


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    """Three views of the room, for bags."""
    return take(SMALL, 3, START)


def real_folder(folder: Path) -> Path:
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder
