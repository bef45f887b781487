from pathlib import Path

import cv2
import numpy as np
import pytest

from gsslam.datasets.images import read_colour, read_depth
from gsslam.errors import BadFrameError

RANDOM = np.random.default_rng(0)
COLOUR = RANDOM.integers(0, 256, (48, 64, 3), dtype=np.uint8)
DEPTH = RANDOM.integers(1, 5000, (48, 64)).astype(np.uint16)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name, image in (("c.png", COLOUR), ("c.jpg", COLOUR), ("d.png", DEPTH)):
        assert cv2.imwrite(str(tmp_path / name), image)
    return tmp_path


def test_colour_is_rgb(images: Path) -> None:
    np.testing.assert_array_equal(read_colour(images / "c.png"), COLOUR[..., ::-1])
    assert read_colour(images / "c.jpg").shape == (48, 64, 3)


def test_depth_is_raw_with_saturated_pixels_cleared(images: Path) -> None:
    np.testing.assert_array_equal(read_depth(images / "d.png"), DEPTH)
    saturated = DEPTH.copy()
    saturated[3] = 65535
    cv2.imwrite(str(images / "s.png"), saturated)
    read = read_depth(images / "s.png")
    assert not read[3].any()
    np.testing.assert_array_equal(np.delete(read, 3, 0), np.delete(DEPTH, 3, 0))


@pytest.mark.parametrize("name", ["c.png", "c.jpg", "d.png"])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_truncated_image_is_a_bad_frame(images: Path, name: str, kept: float) -> None:
    data = (images / name).read_bytes()
    (images / name).write_bytes(data[: int(len(data) * kept)])
    read = read_depth if name == "d.png" else read_colour
    with pytest.raises(BadFrameError, match=f"{name} is truncated or damaged"):
        read(images / name)


def test_flipped_bit_in_a_png_is_a_bad_frame(images: Path) -> None:
    data = bytearray((images / "d.png").read_bytes())
    data[len(data) // 2] ^= 4
    (images / "d.png").write_bytes(data)
    with pytest.raises(BadFrameError, match="damaged"):
        read_depth(images / "d.png")


@pytest.mark.parametrize(
    ("image", "what"),
    [
        (np.zeros((48, 64), np.uint16), "no measurement"),
        (np.full((48, 64), 65535, np.uint16), "no measurement"),
        (np.full((48, 64), 9, np.uint8), r"1 channel\(s\) of 8 bits"),
        (np.full((48, 64, 3), 9, np.uint16), r"3 channel\(s\) of 16 bits"),
    ],
)
def test_unusable_depth_is_a_bad_frame(images: Path, image: np.ndarray, what: str) -> None:
    cv2.imwrite(str(images / "d.png"), image)
    with pytest.raises(BadFrameError, match=what):
        read_depth(images / "d.png")


def test_missing_and_foreign_files_are_bad_frames(images: Path) -> None:
    with pytest.raises(BadFrameError, match=r"cannot read image .*absent\.png"):
        read_colour(images / "absent.png")
    (images / "text.png").write_text("hello")
    with pytest.raises(BadFrameError, match="cannot be decoded"):
        read_colour(images / "text.png")
