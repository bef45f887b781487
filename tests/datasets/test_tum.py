from pathlib import Path

import cv2
import numpy as np
import pytest

from gsslam.datasets import open_dataset
from gsslam.datasets.images import read_colour
from gsslam.datasets.tum import pair_by_time
from gsslam.errors import DatasetError


def test_real_sequence_has_every_colour_image_and_pose(fr1_xyz: Path) -> None:
    dataset = open_dataset("tum/fr1_xyz", fr1_xyz)
    assert len(dataset) == 798
    truth = dataset.ground_truth
    assert truth is not None
    assert len(truth) == 796  # motion capture has a gap of 75 ms
    assert (np.diff(truth.timestamps) > 0).all()
    frame = dataset[0]
    assert frame.timestamp == 1305031102.175304
    # Nearest line of groundtruth.txt: 1305031102.1758 1.3405 0.6266 1.6575 ...
    assert frame.T_world_camera is not None
    np.testing.assert_array_equal(frame.T_world_camera[:3, 3], truth.T_world_camera[0, :3, 3])
    np.testing.assert_allclose(frame.T_world_camera[:3, 3], [1.3405, 0.6266, 1.6575], atol=1e-9)
    # TUM's path length of this sequence is 7.112 m by motion capture at 100 Hz.
    steps = np.linalg.norm(np.diff(truth.T_world_camera[:, :3, 3], axis=0), axis=1)
    assert 6.5 < steps.sum() < 8.5
    assert [dataset[i].T_world_camera is None for i in range(0, 798, 133)] == [False] * 6


def test_real_frame_is_undistorted_at_half_size(fr1_xyz: Path) -> None:
    dataset = open_dataset("tum/fr1_xyz", fr1_xyz, resolution=(320, 240))
    camera = dataset.camera
    # Longer by the zoom that leaves out what the lens did not see.
    assert 1.05 < camera.fx / (517.3 / 2) < 1.08
    assert camera.fx / camera.fy == pytest.approx(517.3 / 516.5)
    assert (camera.cx, camera.cy) == ((318.6 + 0.5) / 2, (255.3 + 0.5) / 2)
    frame = dataset[100]
    assert frame.rgb.shape == (240, 320, 3)
    assert frame.depth.shape == (240, 320)
    assert 0.6 < (frame.depth > 0).mean() < 0.9
    assert 0.7 < np.median(frame.depth[frame.depth > 0]) < 1.5
    # OpenCV's own undistortion, whose pixel centres are integers, must agree in the full image.
    K = np.array([[517.3, 0, 318.6], [0, 516.5, 255.3], [0, 0, 1]])
    coefficients = np.array([0.2624, -0.9531, -0.0054, 0.0026, 1.1633])
    lines = (fr1_xyz / "rgb.txt").read_text().splitlines()
    names = [line.split()[1] for line in lines if line[0] != "#"]
    dataset = open_dataset("tum/fr1_xyz", fr1_xyz)
    target = np.diag([dataset.camera.fx / 517.3, dataset.camera.fy / 516.5, 1]) @ K
    target[:2, 2] = K[:2, 2]
    expected = cv2.undistort(read_colour(fr1_xyz / names[100]), K, coefficients, None, target)
    full = dataset[100].rgb
    inner = np.s_[30:-30, 30:-30]
    difference = np.abs(full[inner].astype(float) - expected[inner])
    assert difference.mean() < 0.1
    assert difference.max() <= 8


def test_views_agree_under_the_true_motion(fr1_xyz: Path) -> None:
    """Depth and poses carry one frame's colours to their place in another."""
    dataset = open_dataset("tum/fr1_xyz", fr1_xyz, resolution=(320, 240))
    camera, a, b = dataset.camera, dataset[200], dataset[206]
    assert a.T_world_camera is not None
    assert b.T_world_camera is not None
    u, v = np.meshgrid(np.arange(320) + 0.5, np.arange(240) + 0.5)
    rays = np.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, np.ones_like(u)])
    grey_a = cv2.cvtColor(a.rgb, cv2.COLOR_RGB2GRAY).astype(np.float32)
    grey_b = cv2.cvtColor(b.rgb, cv2.COLOR_RGB2GRAY).astype(np.float32)

    def residual(T_b_a: np.ndarray) -> float:
        points = np.einsum("ij,jhw->ihw", T_b_a[:3, :3], rays * a.depth) + T_b_a[:3, 3, None, None]
        x = camera.fx * points[0] / np.maximum(points[2], 0.1) + camera.cx - 0.5
        y = camera.fy * points[1] / np.maximum(points[2], 0.1) + camera.cy - 0.5
        seen = (a.depth > 0) & (x > 0) & (x < 319) & (y > 0) & (y < 239)
        warped = cv2.remap(grey_b, x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR)
        return float(np.median(np.abs(warped - grey_a)[seen]))

    moved = residual(np.linalg.inv(b.T_world_camera) @ a.T_world_camera)
    assert moved < 4
    assert moved < 0.5 * residual(np.eye(4))


def test_colour_takes_the_nearest_depth() -> None:
    colour = [(t, Path(f"c{t}")) for t in (1.000, 1.033, 1.066, 2.0)]
    depth = [(t, Path(f"d{t}")) for t in (0.990, 1.050, 1.9)]
    pairs = pair_by_time(colour, depth)
    # 1.050 is nearest to both 1.033 and 1.066; 2.0 has none within 20 ms.
    assert [(p.timestamp, p.depth.name) for p in pairs] == [
        (1.000, "d0.99"),
        (1.033, "d1.05"),
        (1.066, "d1.05"),
    ]


def write_lists(folder: Path, colour: str, depth: str) -> Path:
    (folder / "rgb.txt").write_text(colour)
    (folder / "depth.txt").write_text(depth)
    return folder


@pytest.mark.parametrize(
    ("colour", "depth", "what"),
    [
        ("1.0 rgb/a.png", "9.0 depth/a.png", "none of 1 colour images"),
        ("# empty", "1.0 depth/a.png", "none of 0 colour images"),
        ("1.0 rgb/a.png", "1.0 depth/a.png", "cannot read image .*rgb/a.png"),
        ("1.0", "1.0 depth/a.png", r"rgb\.txt, line 1: expected a time stamp"),
        ("1.0 rgb/a.png", "# list\nnan depth/a.png", r"depth\.txt, line 2: expected"),
    ],
)
def test_bad_lists_are_explained(tmp_path: Path, colour: str, depth: str, what: str) -> None:
    with pytest.raises(DatasetError, match=what) as error:
        open_dataset("tum/fr1_desk", write_lists(tmp_path, colour, depth))
    assert "\n" not in str(error.value)


def test_folder_without_lists_is_explained(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read .*rgb\.txt"):
        open_dataset("tum/fr1_desk", tmp_path)
