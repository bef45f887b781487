"""The COLMAP model: read by a parser of its own, and true to the images."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from gsslam.errors import OutputError
from gsslam.export.colmap import write_colmap
from gsslam.finished_run import FinishedRun

Array = NDArray[np.float64]


def parse_model(folder: Path) -> tuple[dict[int, list[str]], dict[str, tuple[Array, Array]], Array]:
    """Cameras by id; rotation and translation, world to camera, by image name; points."""

    def lines(name: str) -> list[str]:
        text = (folder / "sparse" / "0" / name).read_text()
        return [line for line in text.split("\n") if not line.startswith("#")]

    cameras = {int(line.split()[0]): line.split()[1:] for line in lines("cameras.txt") if line}
    images = {}
    text = lines("images.txt")
    for pose, points in zip(text[0:-1:2], text[1::2], strict=True):
        assert points == ""
        number, *numbers, camera, name = pose.split()
        assert int(number) == len(images) + 1
        assert int(camera) in cameras
        w, x, y, z, *translation = map(float, numbers)
        assert np.isclose(np.linalg.norm([w, x, y, z]), 1)
        images[name] = (rotation(w, np.array([x, y, z])), np.array(translation))
    points = np.array(
        [[float(word) for word in line.split()] for line in lines("points3D.txt") if line]
    )
    return cameras, images, points


def rotation(w: float, v: Array) -> Array:
    """Rodrigues' formula for the unit quaternion (w, v)."""
    cross = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    return np.eye(3) + 2 * w * cross + 2 * cross @ cross


def test_points_project_to_where_the_images_show_them(small_run: Path, tmp_path: Path) -> None:
    run = FinishedRun.read(small_run)
    dataset, state = run.source.open(), run.spheres()
    folder = tmp_path / "colmap"
    assert write_colmap(folder, state, dataset, run.tracked_views(5)) == 5
    cameras, images, points = parse_model(folder)
    model, width, height, *intrinsics = cameras[1]
    assert (model, width, height) == ("PINHOLE", "96", "72")
    fx, fy, cx, cy = map(float, intrinsics)
    assert sorted(images) == [f"{i:06d}.png" for i in (0, 3, 6, 8, 11)]
    assert points.shape == (len(state), 8)
    np.testing.assert_allclose(points[:, 1:4], state.xyz, atol=1e-5)
    for name, (R, t) in images.items():
        image = cv2.imread(str(folder / "images" / name))[..., ::-1]
        frame = dataset[int(name[:6])]
        np.testing.assert_array_equal(image, frame.rgb)
        camera_points = points[:, 1:4] @ R.T + t
        z = camera_points[:, 2]
        u = np.floor(fx * camera_points[:, 0] / z + cx).astype(int)
        v = np.floor(fy * camera_points[:, 1] / z + cy).astype(int)
        inside = (z > 0) & (u >= 0) & (u < 96) & (v >= 0) & (v < 72)
        on_surface = np.abs(z[inside] - frame.depth[v[inside], u[inside]]) < 0.03
        assert on_surface.mean() > 0.75  # the rest is hidden, or at edges
        shown = image[v[inside], u[inside]].astype(float)[on_surface]
        stored = points[inside, 4:7][on_surface]
        assert np.corrcoef(shown.ravel(), stored.ravel())[0, 1] > 0.75


def test_it_appears_whole_or_not_at_all(small_run: Path, tmp_path: Path) -> None:
    run = FinishedRun.read(small_run)
    dataset, state, views = run.source.open(), run.spheres(), run.tracked_views(3)
    folder = tmp_path / "colmap"

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_colmap(folder, state, dataset, views, fail)
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    write_colmap(folder, state, dataset, views)  # an empty folder is none of anybody's
    before = (folder / "sparse" / "0" / "images.txt").read_bytes()
    with pytest.raises(OutputError, match="exists already"):
        write_colmap(folder, state, dataset, views)
    assert (folder / "sparse" / "0" / "images.txt").read_bytes() == before
    with pytest.raises(OutputError, match="cannot write"):
        write_colmap(folder / "sparse" / "0" / "images.txt" / "below", state, dataset, views)
    assert [path.name for path in tmp_path.iterdir()] == ["colmap"]
