"""What bags may hold, beyond the plain recording of test_formats."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gsslam.datasets import open_dataset
from gsslam.datasets.base import Dataset
from gsslam.datasets.rectify import Calibration, ColourRectifier
from gsslam.datasets.room import build_room
from gsslam.datasets.scene import cast_rays
from gsslam.errors import DatasetError
from tests.datasets import bags
from tests.datasets.bags import COLOUR, DEPTH, OPTICAL, Bag, camera_info, image, room_bag, without
from tests.datasets.recordings import SMALL, Shot, take

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
START = 1700000000.25


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    return take(SMALL, 3, START)


def opened(bag: Bag, tmp_path: Path, **options: Any) -> Dataset:
    return open_dataset(str(bag.write(tmp_path / "ros2")), **options)


def check_depth(dataset: Dataset, shots: list[Shot], step: float = 1e-3) -> None:
    for index, shot in enumerate(shots):
        np.testing.assert_allclose(dataset[index].depth, shot.depth, atol=0.51 * step)


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


def test_unregistered_depth_is_registered_by_tf_static(shots: list[Shot], tmp_path: Path) -> None:
    """Depth measured 5 cm to the left of colour; the frames meet in the camera's link."""
    T_color_depth = np.eye(4)
    T_color_depth[0, 3] = -0.05
    depth_shots = take(SMALL, 3, START)
    poses = [shot.T_world_camera @ T_color_depth for shot in shots]
    bag = without(room_bag(shots), DEPTH, "aligned")
    topic = "/camera/depth/image_rect_raw"
    for shot, pose in zip(depth_shots, poses, strict=True):
        depth = cast_rays(build_room(), SMALL, pose, np.float64).depth
        fields = image((1000 * depth).astype(np.uint16), "16UC1", shot.timestamp, "depth_frame")
        bag.add(topic, IMAGE, shot.timestamp, **fields)
        info = camera_info(SMALL, shot.timestamp, "depth_frame")
        bag.add("/camera/depth/camera_info", "sensor_msgs/msg/CameraInfo", shot.timestamp, **info)
    refused = bag.write(tmp_path / "ros2_refused")
    with pytest.raises(
        DatasetError, match=r"how the depth camera \(depth_frame\) is mounted .*ros2_refused\.yaml"
    ):
        open_dataset(str(refused))
    (tmp_path / "ros2_refused.yaml").write_text(
        "T_color_depth: {rotation_vector: [0, 0, 0], translation: [-0.05, 0, 0]}\n"
    )
    link = [
        bags.transform(OPTICAL, "link", np.eye(4), 0),
        bags.transform("link", "depth_frame", T_color_depth, 0),
    ]
    bag.add("/tf_static", "tf2_msgs/msg/TFMessage", START, transforms=link)
    for dataset in (opened(bag, tmp_path), open_dataset(str(refused))):
        found = dataset[0].depth
        both = found > 0
        assert both.mean() > 0.8
        assert np.median(np.abs(found - shots[0].depth)[both]) < 0.01


def test_lens_distortion_is_undone(shots: list[Shot], tmp_path: Path) -> None:
    D = (0.1, -0.05, 0.001, -0.002, 0.01, 0.02, -0.01, 0.003)
    bag = without(room_bag(shots), "color/camera_info")
    info = camera_info(SMALL, START, OPTICAL, D, "rational_polynomial")
    bag.add("/camera/color/camera_info", "sensor_msgs/msg/CameraInfo", START, **info)
    dataset = opened(bag, tmp_path)
    lens = Calibration(SMALL, D)
    assert dataset.camera == lens.pinhole() != SMALL
    expected = ColourRectifier(lens, lens.pinhole())(shots[0].rgb)
    np.testing.assert_array_equal(dataset[0].rgb, expected)
    fisheye = camera_info(SMALL, START, OPTICAL, (0.1, 0.1, 0.0, 0.0), "equidistant")
    bag = without(bag, "color/camera_info")
    bag.add("/camera/color/camera_info", "sensor_msgs/msg/CameraInfo", START, **fisheye)
    with pytest.raises(DatasetError, match=r"lens model 'equidistant'"):
        open_dataset(str(bag.write(tmp_path / "ros2_fisheye")))


def test_no_tf_means_no_ground_truth(shots: list[Shot], tmp_path: Path) -> None:
    assert opened(room_bag(shots, with_truth=False), tmp_path).ground_truth is None


def test_odometry_is_no_ground_truth(shots: list[Shot], tmp_path: Path) -> None:
    bag = room_bag(shots, with_truth=False)
    for index, shot in enumerate(shots):
        moving = [bags.transform("odom", OPTICAL, shot.T_world_camera, shot.timestamp)]
        bag.add("/tf", "tf2_msgs/msg/TFMessage", START + index, transforms=moving)
    assert opened(bag, tmp_path).ground_truth is None
    (tmp_path / "ros2.yaml").write_text("world_frame: odom\n")
    truth = open_dataset(str(tmp_path / "ros2")).ground_truth
    assert truth is not None
    np.testing.assert_allclose(truth.T_world_camera[2], shots[2].T_world_camera, atol=1e-9)
    (tmp_path / "ros2.yaml").write_text("world_frame: moon\n")
    with pytest.raises(DatasetError, match="tf does not lead from"):
        open_dataset(str(tmp_path / "ros2"))


def test_two_cameras_must_be_told_apart(shots: list[Shot], tmp_path: Path) -> None:
    bag = room_bag(shots)
    other = image(shots[0].rgb[::-1], "rgb8", START, "other")
    bag.add("/other/color/image_raw", IMAGE, START, **other)
    place = bag.write(tmp_path / "ros2")
    with pytest.raises(DatasetError, match=r"several colour topics .* say which in .*ros2\.yaml"):
        open_dataset(str(place))
    (tmp_path / "ros2.yaml").write_text(f"colour: {COLOUR}\n")
    np.testing.assert_array_equal(open_dataset(str(place))[0].rgb, shots[0].rgb)
    (tmp_path / "ros2.yaml").write_text("colour: /nowhere\n")
    with pytest.raises(DatasetError, match="no image topic /nowhere"):
        open_dataset(str(place))
    (tmp_path / "ros2.yaml").write_text("color: /nowhere\n")
    with pytest.raises(DatasetError, match=r"ros2\.yaml: color: "):
        open_dataset(str(place))


def test_camera_can_be_given_where_the_bag_has_none(shots: list[Shot], tmp_path: Path) -> None:
    place = without(room_bag(shots), "camera_info").write(tmp_path / "ros2")
    with pytest.raises(DatasetError, match=r"no camera_info beside /camera/color/image_raw"):
        open_dataset(str(place))
    (tmp_path / "ros2.yaml").write_text(
        "camera: {width: 64, height: 48, fx: 56, fy: 55, cx: 32, cy: 22.5}\ndepth_scale: 500\n"
    )
    dataset = open_dataset(str(place))
    assert dataset.camera == SMALL
    np.testing.assert_allclose(dataset[0].depth, 2 * shots[0].depth, atol=1.1e-3)


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


def test_aligned_depth_is_taken_pixel_by_pixel(tmp_path: Path) -> None:
    """Drivers write the depth camera's own matrix into the camera_info of registered depth."""
    shots = take(SMALL, 2, START)
    bag = without(room_bag(shots), "depth_to_color/camera_info")
    info = camera_info(replace(SMALL, fx=99.0), START, OPTICAL)
    topic = DEPTH.replace("image_raw", "camera_info")
    bag.add(topic, "sensor_msgs/msg/CameraInfo", START, **info)
    check_depth(opened(bag, tmp_path), shots)


def test_depth_in_the_colour_camera_s_frame_comes_first(tmp_path: Path) -> None:
    """As the Azure Kinect's driver publishes it, beside the depth camera's own."""
    shots = take(SMALL, 2, START)
    bag = without(room_bag(shots), DEPTH, "aligned")
    for shot in shots:
        for topic, frame in (("/depth/image_raw", "depth"), ("/depth_to_rgb/image_raw", OPTICAL)):
            depth = shot.depth_image(1000) // (2 if frame == "depth" else 1)
            fields = image(depth, "16UC1", shot.timestamp, frame)
            bag.add(topic, IMAGE, shot.timestamp, **fields)
    check_depth(opened(bag, tmp_path), shots)


def test_rectified_images_have_no_distortion(tmp_path: Path) -> None:
    """Of rectified images, compressed ones too, the projection matrix is the camera."""
    shots = take(SMALL, 1, START)
    bag = without(room_bag(shots), "/camera/color")
    topic = "/camera/color/image_rect_color/compressed"
    data = bags.compressed(bags.jpeg(shots[0].rgb, ".png"), "bgr8; png compressed", START, OPTICAL)
    bag.add(topic, COMPRESSED, START, **data)
    info = camera_info(SMALL, START, OPTICAL, (0.3, 0.0, 0.0, 0.0, 0.0))
    info["k"] = 2 * info["k"]
    bag.add("/camera/color/camera_info", "sensor_msgs/msg/CameraInfo", START, **info)
    dataset = opened(bag, tmp_path)
    assert dataset.camera == SMALL
    np.testing.assert_array_equal(dataset[0].rgb, shots[0].rgb)
