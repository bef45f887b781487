"""Which topics of a bag are taken, and what their cameras, lenses and frames are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gsslam.datasets import open_dataset
from gsslam.datasets.rectify import Calibration, ColourRectifier
from gsslam.datasets.room import build_room
from gsslam.datasets.scene import cast_rays
from gsslam.errors import DatasetError
from tests.datasets import bags
from tests.datasets.bags import (
    COLOUR,
    COMPRESSED,
    DEPTH,
    IMAGE,
    OPTICAL,
    camera_info,
    check_depth,
    image,
    opened,
    room_bag,
    without,
)
from tests.datasets.recordings import SMALL, START, Shot, take


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
