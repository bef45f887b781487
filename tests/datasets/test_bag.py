"""What bags may hold, beyond the plain recording of test_formats."""

from pathlib import Path

import numpy as np
import pytest

from gsslam.datasets import open_dataset
from tests.datasets import bags
from tests.datasets.bags import (
    COLOUR,
    COMPRESSED,
    DEPTH,
    IMAGE,
    OPTICAL,
    check_depth,
    image,
    opened,
    room_bag,
    without,
)
from tests.datasets.recordings import SMALL, START, Shot, take

ENCODINGS = {
    "bgr8": lambda rgb: rgb[..., ::-1],
    "rgba8": lambda rgb: np.dstack([rgb, rgb[..., :1]]),
    "bgra8": lambda rgb: np.dstack([rgb[..., ::-1], rgb[..., :1]]),
    "mono8": lambda rgb: rgb[..., 1],
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_colour_encodings(encoding: str, shots: list[Shot], tmp_path: Path) -> None:
    bag = without(room_bag(shots), COLOUR)
    for shot in shots:
        fields = image(ENCODINGS[encoding](shot.rgb), encoding, shot.timestamp, OPTICAL)
        bag.add(COLOUR, IMAGE, shot.timestamp, **fields)
    found = opened(bag, tmp_path)[1].rgb
    expected = shots[1].rgb if encoding != "mono8" else shots[1].rgb[..., [1, 1, 1]]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("encoding", "pixels"),
    [
        ("yuv422_yuy2", [(1, 0), (0, 1)]),  # Y U Y V
        ("uyvy", [(0, 1), (1, 0)]),  # U Y V Y
    ],
)
def test_yuv_encodings(
    encoding: str, pixels: list[tuple[int, int]], shots: list[Shot], tmp_path: Path
) -> None:
    """A plane of one colour: Y = 128, U = 90, V = 200 in BT.601's studio range."""
    luma_at = 0 if pixels[0] == (1, 0) else 1
    raw = np.zeros((48, 64, 2), np.uint8)
    raw[..., luma_at] = 128
    raw[:, ::2, 1 - luma_at], raw[:, 1::2, 1 - luma_at] = 90, 200
    y, u, v = 1.164 * (128 - 16), 90 - 128, 200 - 128
    expected = [y + 1.596 * v, y - 0.813 * v - 0.391 * u, y + 2.018 * u]
    bag = without(room_bag(shots), COLOUR)
    bag.add(COLOUR, IMAGE, START, **image(raw, encoding, START, OPTICAL))
    found = opened(bag, tmp_path)[0].rgb
    np.testing.assert_allclose(found.reshape(-1, 3), np.tile(expected, (48 * 64, 1)), atol=2)


def test_bayer_pattern(shots: list[Shot], tmp_path: Path) -> None:
    """Of a plane of one colour, RGGB shows red at even and blue at odd rows and columns."""
    raw = np.full((48, 64), 90, np.uint8)
    raw[::2, ::2], raw[1::2, 1::2] = 200, 30
    bag = without(room_bag(shots), COLOUR)
    bag.add(COLOUR, IMAGE, START, **image(raw, "bayer_rggb8", START, OPTICAL))
    np.testing.assert_array_equal(
        opened(bag, tmp_path)[0].rgb[8:-8, 8:-8], [[[200, 90, 30]] * 48] * 32
    )


def test_compressed_images(shots: list[Shot], tmp_path: Path) -> None:
    bag = without(room_bag(shots), COLOUR, DEPTH)
    for shot in shots:
        time = shot.timestamp
        jpeg = bags.compressed(bags.jpeg(shot.rgb), "rgb8; jpeg compressed bgr8", time, OPTICAL)
        bag.add(f"{COLOUR}/compressed", COMPRESSED, time, **jpeg)
        png = bags.compressed_depth(shot.depth_image(1000))
        fields = bags.compressed(png, "16UC1; compressedDepth png", time, OPTICAL)
        bag.add(f"{DEPTH}/compressedDepth", COMPRESSED, time, **fields)
    dataset = opened(bag, tmp_path)
    check_depth(dataset, shots)
    assert (
        np.abs(dataset[0].rgb.astype(int) - shots[0].rgb).mean() < 9
    )  # noise of one pixel, half the colours


@pytest.mark.parametrize("with_gaps", [False, True])
def test_run_length_compressed_depth(with_gaps: bool, shots: list[Shot], tmp_path: Path) -> None:
    bag = without(room_bag(shots), DEPTH)
    depths = [shot.depth_image(1000) for shot in shots]
    for shot, depth in zip(shots, depths, strict=True):
        if with_gaps:
            depth[5:9], depth[:, -7:], depth[0, :3] = 0, 0, 0
        kind, time = "16UC1; compressedDepth rvl", shot.timestamp
        fields = bags.compressed(bags.rvl(depth), kind, time, OPTICAL)
        bag.add(f"{DEPTH}/compressedDepth", COMPRESSED, time, **fields)
    dataset = opened(bag, tmp_path)
    for index, depth in enumerate(depths):
        np.testing.assert_allclose(dataset[index].depth, depth / 1000, rtol=1e-6)


def test_depth_in_metres_and_its_gaps(shots: list[Shot], tmp_path: Path) -> None:
    bag = without(room_bag(shots), DEPTH)
    for shot in shots:
        depth = shot.depth.astype(">f4")
        depth[:4], depth[4:8] = np.nan, np.inf
        fields = image(depth, "32FC1", shot.timestamp, OPTICAL)
        bag.add(DEPTH, IMAGE, shot.timestamp, **fields)
    depth = opened(bag, tmp_path)[2].depth
    assert not depth[:8].any()
    np.testing.assert_allclose(depth[8:], shots[2].depth[8:], rtol=1e-6)


def test_inverse_depth(shots: list[Shot], tmp_path: Path) -> None:
    """32FC1 through compressedDepth: quantised as a / depth + b."""
    bag = without(room_bag(shots), DEPTH)
    a, b = 20_000.0, -1000.0
    for shot in shots:
        units = np.rint(a / shot.depth + b).astype(np.uint16)
        data = bags.compressed_depth(units, a, b)
        fields = bags.compressed(data, "32FC1; compressedDepth", shot.timestamp, OPTICAL)
        bag.add(f"{DEPTH}/compressedDepth", COMPRESSED, shot.timestamp, **fields)
    dataset = opened(bag, tmp_path)
    np.testing.assert_allclose(dataset[1].depth, shots[1].depth, rtol=5e-4)


def test_frames_are_paired_by_the_time_they_were_taken(shots: list[Shot], tmp_path: Path) -> None:
    """Recorded out of order, and the first depth image lost."""
    bag = room_bag(shots)
    entries = [entry for entry in bag.entries if entry[0] == DEPTH]
    bag.entries.remove(entries[0])
    late = {DEPTH: 0.4, COLOUR: 0.1}
    bag.entries = [(t, k, time + round(1e9 * late.get(t, 0)), f) for t, k, time, f in bag.entries]
    dataset = opened(bag, tmp_path)
    np.testing.assert_allclose(dataset.timestamps, [s.timestamp for s in shots[1:]], atol=1e-6)
    check_depth(dataset, shots[1:])
    assert len(open_dataset(str(tmp_path / "ros2"), max_frames=1)) == 1


def test_messages_of_one_instant_are_told_apart(shots: list[Shot], tmp_path: Path) -> None:
    bag = room_bag(shots)
    bag.entries = [(t, k, round(START * 1e9), f) for t, k, _, f in bag.entries]
    for kind in ("single.mcap", "ros1.bag"):
        check_depth(open_dataset(str(bag.write(tmp_path / kind))), shots)


def test_max_frames_finds_what_begins_late(tmp_path: Path) -> None:
    """Depth begins four seconds after colour: the first frames are those that have both."""
    shots = take(SMALL, 4, START)
    bag = without(room_bag(shots), DEPTH)
    early = image(shots[0].rgb, "rgb8", START, OPTICAL)
    for index in range(40):
        time = START - 4 + index / 10
        bag.add(COLOUR, IMAGE, time, **early | {"header": bags.header(time, OPTICAL)})
    for shot in shots:
        fields = image(shot.depth_image(1000), "16UC1", shot.timestamp, OPTICAL)
        bag.add(DEPTH, IMAGE, shot.timestamp + 0.1, **fields)
    dataset = opened(bag, tmp_path, max_frames=2, stride=2)
    np.testing.assert_allclose(dataset.timestamps, [shots[0].timestamp, shots[2].timestamp])
    check_depth(dataset, shots[::2])
