from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from gsslam.datasets import open_dataset
from gsslam.errors import BadFrameError, ConfigError, DatasetError

MakeFolder = Callable[..., Path]


def test_frames_come_in_natural_order(make_folder: MakeFolder) -> None:
    dataset = open_dataset("folder", make_folder(("f1.png", "f2.png", "f10.png")))
    assert (dataset.name, len(dataset), dataset.ground_truth) == ("folder/recording", 3, None)
    for index in range(3):
        frame = dataset[index]
        assert (frame.index, frame.timestamp) == (index, index / 30)
        assert frame.T_world_camera is None
        assert frame.rgb.dtype == np.uint8
        assert frame.depth.dtype == np.float32
        np.testing.assert_allclose(frame.depth, 1 + 0.1 * index, rtol=1e-6)


def test_written_order_is_by_number(make_folder: MakeFolder) -> None:
    # The fixture numbers scenes in the order of names given, so a lexical sort would swap them.
    dataset = open_dataset("folder", make_folder(("f2.png", "f10.png", "f100.png", "f1000.png")))
    assert [round(float(dataset[i].depth[0, 0]), 3) for i in range(4)] == [1.0, 1.1, 1.2, 1.3]


def test_integer_pixel_centres_are_moved_by_half(make_folder: MakeFolder) -> None:
    folder = make_folder()
    camera = open_dataset("folder", folder).camera
    assert (camera.cx, camera.cy) == (16.0, 12.0)
    with (folder / "camera.yaml").open("a") as file:
        file.write("pixel_centre: half\n")
    camera = open_dataset("folder", folder).camera
    assert (camera.cx, camera.cy) == (15.5, 11.5)


def test_decimal_names_are_time_stamps(make_folder: MakeFolder) -> None:
    folder = make_folder(("10.50.png", "10.60.png", "10.70.png"))
    (folder / "depth" / "10.60.png").rename(folder / "depth" / "10.61.png")  # 10 ms late
    (folder / "depth" / "10.70.png").rename(folder / "depth" / "10.73.png")  # too late
    (folder / "groundtruth.txt").write_text(
        "10.495 1 2 3 0 0 0 1\n10.505 9 9 9 0 0 0 1\n10.601 4 5 6 0 0 0 1\n"
    )
    dataset = open_dataset("folder", folder)
    assert [dataset[i].timestamp for i in range(len(dataset))] == [10.5, 10.6]
    truth = dataset.ground_truth
    assert truth is not None
    np.testing.assert_array_equal(truth.T_world_camera[:, :3, 3], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(truth.timestamps, [10.5, 10.6])


def test_stride_max_frames_and_resolution(make_folder: MakeFolder) -> None:
    folder = make_folder(tuple(f"{i}.png" for i in range(10)))
    dataset = open_dataset("folder", folder, stride=3, max_frames=3, resolution=(16, 12))
    assert len(dataset) == 3
    assert [dataset[i].index for i in range(3)] == [0, 1, 2]
    np.testing.assert_allclose([dataset[i].depth[0, 0] for i in range(3)], [1.0, 1.3, 1.6])
    assert dataset[0].rgb.shape == (12, 16, 3)
    assert dataset[0].depth.shape == (12, 16)
    assert (dataset.camera.width, dataset.camera.fx, dataset.camera.cx) == (16, 15.0, 8.0)
    assert dataset[-1].index == 2
    with pytest.raises(IndexError):
        dataset[3]


def test_unregistered_depth_is_registered(make_folder: MakeFolder) -> None:
    folder = make_folder()
    with (folder / "camera.yaml").open("a") as file:
        file.write("depth_camera: {width: 32, height: 24, fx: 30, fy: 30, cx: 15.5, cy: 11.5}\n")
    with pytest.raises(DatasetError, match="go together"):
        open_dataset("folder", folder)
    with (folder / "camera.yaml").open("a") as file:
        file.write("T_color_depth: {rotation_vector: [0, 0, 0], translation: [0.1, 0, 0]}\n")
    depth = open_dataset("folder", folder)[0].depth
    assert not depth[:, :3].any()  # 0.1 m at 1 m moves by three pixels
    np.testing.assert_allclose(depth[:, 3:], 1, rtol=1e-6)


@pytest.mark.parametrize("bad", ["rgb", "depth", "camera.yaml"])
def test_missing_part_is_named(make_folder: MakeFolder, bad: str) -> None:
    folder = make_folder()
    (folder / bad).rename(folder / "elsewhere")
    with pytest.raises(DatasetError, match=f"cannot read .*{bad}"):
        open_dataset("folder", folder)


@pytest.mark.parametrize(
    ("camera", "what"),
    [
        ("width: 32\n", r"camera\.yaml: height: "),
        ("[1, 2", "not valid YAML"),
        ("", r"camera\.yaml: file: "),
    ],
)
def test_bad_camera_file_is_explained(make_folder: MakeFolder, camera: str, what: str) -> None:
    with pytest.raises(DatasetError, match=what) as error:
        open_dataset("folder", make_folder(camera=camera))
    assert "\n" not in str(error.value)


def test_unknown_field_in_camera_file_is_named(make_folder: MakeFolder) -> None:
    folder = make_folder()
    with (folder / "camera.yaml").open("a") as file:
        file.write("depthscale: 5000\n")
    with pytest.raises(DatasetError, match="depthscale"):
        open_dataset("folder", folder)


def test_metres_taken_for_millimetres_are_refused_with_the_right_scale(
    make_folder: MakeFolder,
) -> None:
    folder = make_folder(depth_scale=1)
    with pytest.raises(DatasetError, match=r"scale 1000 .*factor of 5 or 1000; 1 would fit"):
        open_dataset("folder", folder)


def test_millimetres_taken_for_metres_are_refused_with_the_right_scale(
    make_folder: MakeFolder,
) -> None:
    folder = make_folder()
    text = (folder / "camera.yaml").read_text().replace("scale: 1000", "scale: 1")
    (folder / "camera.yaml").write_text(text)
    with pytest.raises(DatasetError, match=r"median depth 1000 m, .*1000 would fit"):
        open_dataset("folder", folder)


def test_sizes_that_differ_are_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    for path in (folder / "depth").iterdir():
        cv2.imwrite(str(path), np.full((12, 16), 1000, np.uint16))
    with pytest.raises(DatasetError, match="16x12 where the calibration says 32x24"):
        open_dataset("folder", folder)


def test_counts_that_differ_are_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / "depth" / "10.png").unlink()
    with pytest.raises(DatasetError, match=r"has 3 images but .* has 2"):
        open_dataset("folder", folder)


def test_no_pairs_in_time_is_refused(make_folder: MakeFolder) -> None:
    folder = make_folder(("1.50.png", "2.50.png"))
    for path in sorted((folder / "depth").iterdir()):
        path.rename(path.with_name("10" + path.name))
    with pytest.raises(DatasetError, match=r"none of 2 colour images .* within 20 ms"):
        open_dataset("folder", folder)


def test_nan_in_ground_truth_is_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / "groundtruth.txt").write_text("0.0 0 0 0 0 0 0 1\n0.1 nan 0 0 0 0 0 1\n")
    with pytest.raises(DatasetError, match=r"groundtruth\.txt, line 2: the pose is NaN"):
        open_dataset("folder", folder)


def test_one_bad_frame_does_not_spoil_the_sequence(make_folder: MakeFolder) -> None:
    folder = make_folder()
    first = folder / "depth" / "1.png"
    first.write_bytes(first.read_bytes()[:-20])
    dataset = open_dataset("folder", folder)
    with pytest.raises(BadFrameError, match="truncated"):
        dataset[0]
    assert dataset[1].depth[0, 0] == np.float32(1.1)


def test_impossible_options_are_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    with pytest.raises(ConfigError, match="stride"):
        open_dataset("folder", folder, stride=0)
    with pytest.raises(ConfigError, match="max_frames"):
        open_dataset("folder", folder, max_frames=0)
    with pytest.raises(ConfigError, match="size"):
        open_dataset("folder", folder, resolution=(0, 10))
