import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from gsslam.datasets import catalogue, open_dataset
from gsslam.errors import DatasetError


def test_real_sequence(kitchen: Path) -> None:
    dataset = open_dataset("7scenes/redkitchen", kitchen, resolution=(320, 240))
    assert len(dataset) == 300
    truth = dataset.ground_truth
    assert truth is not None
    assert len(truth) == 300
    np.testing.assert_allclose(np.diff(truth.timestamps), 1 / 30)
    R = truth.T_world_camera[:, :3, :3]
    identity = np.broadcast_to(np.eye(3), R.shape)
    np.testing.assert_allclose(R @ R.transpose(0, 2, 1), identity, atol=1e-12)
    frame = dataset[0]
    assert frame.depth.shape == (240, 320)
    assert 0.7 < (frame.depth > 0).mean() < 0.85
    assert 1.5 < np.median(frame.depth[frame.depth > 0]) < 2.2


def test_poses_are_moved_to_the_colour_camera(kitchen: Path) -> None:
    """The depth camera's centre, seen from the colour camera, is the extrinsics' translation."""
    dataset = open_dataset("7scenes/redkitchen", kitchen, max_frames=5)
    frame = dataset[3]
    published = np.loadtxt(kitchen / "frame-000003.pose.txt")
    assert frame.T_world_camera is not None
    seen = np.linalg.inv(frame.T_world_camera) @ published[:, 3]
    np.testing.assert_allclose(seen[:3], [-0.0176, 0, 0], atol=1e-12)
    rotation = np.linalg.inv(frame.T_world_camera)[:3, :3] @ published[:3, :3]
    expected, _ = cv2.Rodrigues(np.array([0.01048, -0.01405, 0.00364]))
    np.testing.assert_allclose(rotation, expected, atol=5e-4)  # published to 4e-4


def colour_change_at_depth_edges(rgb: np.ndarray, depth: np.ndarray) -> float:
    """How much more the colour changes beside edges of depth than elsewhere."""
    square = np.ones((3, 3))
    near = cv2.erode(np.where(depth > 0, depth, 99).astype(np.float32), square)
    far = cv2.dilate(depth.astype(np.float32), square)
    at_edge = (far - near > 0.1 * near) & (near < 9)
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32)
    change = cv2.dilate(np.hypot(cv2.Sobel(grey, -1, 1, 0), cv2.Sobel(grey, -1, 0, 1)), square)
    return float(change[at_edge].mean() / change.mean())


def test_registration_puts_depth_edges_on_colour_edges(kitchen: Path) -> None:
    dataset = open_dataset("7scenes/redkitchen", kitchen)
    registered, unregistered = [], []
    for index in (0, 60, 120, 150, 200, 270):
        frame = dataset[index]
        raw = cv2.imread(str(kitchen / f"frame-{index:06d}.depth.png"), cv2.IMREAD_UNCHANGED)
        unmoved = np.where(raw == 65535, 0, raw) / 1000
        registered.append(colour_change_at_depth_edges(frame.rgb, frame.depth))
        unregistered.append(colour_change_at_depth_edges(frame.rgb, unmoved))
    assert (np.array(registered) > 1.3 * np.array(unregistered)).all()
    assert np.mean(registered) > 1.7
    assert np.mean(unregistered) < 1.2


def test_sequence_below_the_scene_folder(kitchen: Path, tmp_path: Path) -> None:
    (tmp_path / "seq-01").mkdir()
    for kind in ("color.jpg", "depth.png", "pose.txt"):
        shutil.copy(kitchen / f"frame-000007.{kind}", tmp_path / "seq-01")
    dataset = open_dataset("7scenes/redkitchen", tmp_path)
    assert len(dataset) == 1
    assert dataset[0].timestamp == 7 / 30
    (tmp_path / "seq-01" / "frame-000007.pose.txt").write_text("1 0 0 nan\n" + "0 0 0 1\n" * 3)
    with pytest.raises(DatasetError, match=r"frame-000007\.pose\.txt is NaN or infinite"):
        open_dataset("7scenes/redkitchen", tmp_path)
    (tmp_path / "seq-01" / "frame-000007.pose.txt").write_text("1 0 0\n")
    with pytest.raises(DatasetError, match="3 numbers where 16"):
        open_dataset("7scenes/redkitchen", tmp_path)
    (tmp_path / "seq-01" / "frame-000007.pose.txt").unlink()
    assert open_dataset("7scenes/redkitchen", tmp_path).ground_truth is None


def test_folder_without_frames_is_explained(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no frame-\*\.depth\.png"):
        open_dataset("7scenes/chess", tmp_path)


def test_every_scene_has_both_cameras() -> None:
    scenes = ("chess", "fire", "heads", "office", "pumpkin", "redkitchen", "stairs")
    for scene in scenes:
        sensor = catalogue.find(f"7scenes/{scene}").sensor()
        assert sensor.depth is not None
        assert (sensor.depth.camera.fx, sensor.depth.camera.cx) == (585, 320.5)
        assert (sensor.colour.camera.fx, sensor.colour.camera.cx) == (529.2, 327.0)
