"""Mesh and point cloud: they lie on the room's true surfaces, and other programs read them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from plyfile import PlyData

from gsslam import open_dataset
from gsslam.datasets.base import Dataset
from gsslam.errors import ConfigError, DatasetError, OutputError
from gsslam.export.coloured_ply import write_coloured_ply
from gsslam.export.mesh import require_open3d, write_mesh
from gsslam.export.pointcloud import surface_points, write_point_cloud
from gsslam.export.surfaces import SurfaceView, solid_depth
from gsslam.geometry import inverse
from gsslam.results import RenderedView, SphereState

PLACES = (0, 6, 12, 18, 24)


@pytest.fixture
def o3d() -> Any:
    try:
        return require_open3d()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def room() -> Dataset:
    return open_dataset("synthetic/room", resolution=(128, 96), max_frames=25)


@pytest.fixture(scope="module")
def views(room: Dataset) -> list[SurfaceView]:
    """What a perfect map would show."""
    result = []
    for place in PLACES:
        frame = room[place]
        assert frame.T_world_camera is not None
        colour = frame.rgb.astype(np.float32) / 255
        opaque = np.ones_like(frame.depth)
        depth = solid_depth(RenderedView(colour, frame.depth, opaque))
        result.append(SurfaceView(frame.T_world_camera, colour, depth))
    return result


def behind_surface(room: Dataset, place: int, xyz: NDArray[np.floating]) -> NDArray[np.float64]:
    """How far those of ``xyz`` (N, 3) that lie in the view of a frame are behind what it shows."""
    frame = room[place]
    assert frame.T_world_camera is not None
    camera, T = frame.camera, inverse(frame.T_world_camera)
    points = xyz @ T[:3, :3].T + T[:3, 3]
    z = points[:, 2]
    u = np.floor(camera.fx * points[:, 0] / z + camera.cx).astype(int)
    v = np.floor(camera.fy * points[:, 1] / z + camera.cy).astype(int)
    inside = (z > 0) & (u >= 0) & (u < camera.width) & (v >= 0) & (v < camera.height)
    return z[inside] - frame.depth[v[inside], u[inside]]


def read_mesh(path: Path) -> tuple[NDArray, NDArray, NDArray]:
    ply = PlyData.read(str(path))
    vertex, face = ply["vertex"].data, ply["face"].data
    xyz = np.stack([vertex[axis] for axis in "xyz"], axis=1).astype(np.float64)
    rgb = np.stack([vertex[name] for name in ("red", "green", "blue")], axis=1)
    return xyz, rgb, np.stack(list(face["vertex_indices"]))


def test_the_mesh_is_the_room(
    o3d: Any, room: Dataset, views: list[SurfaceView], tmp_path: Path
) -> None:
    path = tmp_path / "mesh.ply"
    count = write_mesh(path, views, room.camera, 0.03, 10.0)
    xyz, rgb, triangles = read_mesh(path)
    assert len(triangles) == count > 10_000
    assert triangles.min() == 0
    assert triangles.max() == len(xyz) - 1
    sharp = open_dataset("synthetic/room", resolution=(1024, 768), max_frames=25)
    for place in (3, 15):  # views that were not fused
        off = np.abs(behind_surface(sharp, place, xyz))
        assert np.median(off) < 0.003
        assert (off < 0.03).mean() > 0.97
    assert rgb.std() > 20
    # Triangles face the cameras.
    corners = xyz[triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    eye = views[0].T_world_camera[:3, 3]
    assert (np.sum(normals * (eye - corners.mean(axis=1)), axis=1) > 0).mean() > 0.95
    assert [each.name for each in tmp_path.iterdir()] == ["mesh.ply"]


def test_the_mesh_has_the_same_bytes_every_time_and_open3d_reads_it(
    o3d: Any, room: Dataset, views: list[SurfaceView], tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("a.ply", "b.ply")]
    for path in paths:
        write_mesh(path, views, room.camera, 0.05, 10.0)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    xyz, rgb, triangles = read_mesh(paths[0])
    mesh = o3d.io.read_triangle_mesh(str(paths[0]))
    np.testing.assert_array_equal(np.asarray(mesh.vertices), xyz)
    np.testing.assert_array_equal(np.asarray(mesh.triangles), triangles)
    np.testing.assert_allclose(np.asarray(mesh.vertex_colors) * 255, rgb, atol=1e-3)


def test_colours_of_the_mesh_are_those_seen(
    o3d: Any, room: Dataset, views: list[SurfaceView], tmp_path: Path
) -> None:
    halves = []
    for view in views:
        colour = np.zeros_like(view.colour)
        # Red where the world's x is negative, blue elsewhere.
        v, u = np.mgrid[: room.camera.height, : room.camera.width] + 0.5
        rays = np.stack(
            [
                (u - room.camera.cx) / room.camera.fx,
                (v - room.camera.cy) / room.camera.fy,
                0 * u + 1,
            ],
            axis=2,
        )
        world = (view.depth[..., None] * rays) @ view.T_world_camera[:3, :3].T
        is_left = world[..., 0] + view.T_world_camera[0, 3] < 0
        colour[is_left, 0] = colour[~is_left, 2] = 1
        halves.append(replace(view, colour=colour))
    write_mesh(tmp_path / "mesh.ply", halves, room.camera, 0.03, 10.0)
    xyz, rgb, _ = read_mesh(tmp_path / "mesh.ply")
    clear = np.abs(xyz[:, 0]) > 0.1
    assert ((rgb[:, 0] > 200) == (xyz[:, 0] < 0))[clear].mean() > 0.99


def test_what_cannot_become_a_mesh(
    o3d: Any,
    room: Dataset,
    views: list[SurfaceView],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "mesh.ply"
    for voxel, depth, message in ((0, 10, "--voxel 0"), (0.1, float("nan"), "--max-depth nan")):
        with pytest.raises(ConfigError, match=message):
            write_mesh(path, views, room.camera, voxel, depth)
    nothing = [replace(view, depth=np.zeros_like(view.depth)) for view in views]
    with pytest.raises(DatasetError, match="no surface"):
        write_mesh(path, nothing, room.camera, 0.05, 10.0)
    with pytest.raises(DatasetError, match="no surface"):
        write_mesh(path, views, room.camera, 0.05, 0.01)
    with pytest.raises(OutputError, match="cannot write"):
        write_mesh(Path(__file__) / "mesh.ply", views, room.camera, 0.2, 10.0)
    monkeypatch.setitem(sys.modules, "open3d", None)
    with pytest.raises(ConfigError, match=r"making a mesh needs open3d .*gsslam\[mesh\]"):
        write_mesh(path, views, room.camera, 0.05, 10.0)
    assert list(tmp_path.iterdir()) == []


def spheres_on(room: Dataset, place: int, offset: float = 0.0) -> SphereState:
    """A sphere at every third pixel of a frame, ``offset`` metres behind what it shows."""
    frame = room[place]
    assert frame.T_world_camera is not None
    camera = frame.camera
    v, u = np.mgrid[1 : camera.height : 3, 1 : camera.width : 3].reshape(2, -1)
    z = frame.depth[v, u] + offset
    points = np.stack(
        [(u + 0.5 - camera.cx) / camera.fx * z, (v + 0.5 - camera.cy) / camera.fy * z, z]
    )
    xyz = points.T @ frame.T_world_camera[:3, :3].T + frame.T_world_camera[:3, 3]
    ones = np.ones(len(xyz), np.float32)
    rgb = frame.rgb[v, u].astype(np.float32) / 255
    return SphereState(xyz.astype(np.float32), np.log(0.01) * ones, ones, rgb)


def test_points_are_spheres_on_surfaces_with_their_normals(
    room: Dataset, views: list[SurfaceView], tmp_path: Path
) -> None:
    on, behind = spheres_on(room, 6), spheres_on(room, 6, offset=0.5)
    both = SphereState(
        *(
            np.concatenate([getattr(s, name) for s in (on, behind)])
            for name in ("xyz", "log_radius", "opacity_logit", "rgb")
        )
    )
    points = surface_points(both, views, room.camera)
    normals, seen = points.normals, points.seen
    assert seen[: len(on)].mean() > 0.85  # the rest is at edges
    assert seen[len(on) :].mean() < 0.05
    np.testing.assert_allclose(np.linalg.norm(normals[seen], axis=1), 1, atol=1e-5)
    # Towards the camera; and the room is made of planes along the world's axes, and a few balls.
    towards = views[1].T_world_camera[:3, 3] - both.xyz
    assert (np.sum(normals * towards, axis=1)[seen] > 0).mean() > 0.99
    path = tmp_path / "points.ply"
    count = write_point_cloud(path, both, views, room.camera)
    vertex = PlyData.read(str(path))["vertex"].data
    assert len(vertex) == count == seen.sum()
    np.testing.assert_array_equal(vertex["z"], points.xyz[seen, 2])
    np.testing.assert_array_equal(vertex["ny"], normals[seen, 1])
    np.testing.assert_array_equal(vertex["green"], np.rint(255 * both.rgb[seen, 1]))


def test_normals_of_a_tilted_plane_are_exact(room: Dataset) -> None:
    camera = room.camera
    normal = np.array([0.3, -0.4, -0.866])
    normal /= np.linalg.norm(normal)
    v, u = np.mgrid[: camera.height, : camera.width]
    rays = np.stack(
        [(u + 0.5 - camera.cx) / camera.fx, (v + 0.5 - camera.cy) / camera.fy, u * 0 + 1.0]
    )
    depth = (-2.0 / np.tensordot(normal, rays, axes=1)).astype(np.float32)
    view = SurfaceView(np.eye(4), np.zeros((*depth.shape, 3), np.float32), depth)
    at = (48, 64)
    centre = (rays * depth)[:, at[0], at[1]].astype(np.float32)[None]
    # A centimetre behind the plane, straight behind the pixel's centre.
    state = SphereState(
        centre * np.float32(1.005), np.float32([-3]), np.float32([1]), np.zeros((1, 3), np.float32)
    )
    points = surface_points(state, [view], camera)
    assert points.seen.all()
    np.testing.assert_allclose(points.normals[0], normal, atol=1e-4)
    assert normal @ points.xyz[0] == pytest.approx(-2.0, abs=1e-5)
    assert abs(normal @ state.xyz[0] + 2.0) > 5e-3


def test_open3d_reads_the_points(o3d: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    xyz, rgb = rng.normal(size=(20, 3)).astype(np.float32), rng.random((20, 3), np.float32)
    path = tmp_path / "points.ply"
    write_coloured_ply(path, xyz, rgb, normals=xyz)
    cloud = o3d.io.read_point_cloud(str(path))
    np.testing.assert_array_equal(np.asarray(cloud.points), xyz)
    np.testing.assert_array_equal(np.asarray(cloud.normals), xyz)
    np.testing.assert_allclose(np.asarray(cloud.colors), rgb, atol=0.5 / 255 + 1e-6)


def test_a_map_that_nobody_sees_has_no_points(room: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no surface"):
        write_point_cloud(tmp_path / "points.ply", spheres_on(room, 0), [], room.camera)
    assert list(tmp_path.iterdir()) == []


def test_doubtful_depth_is_left_out(room: Dataset) -> None:
    frame = room[0]
    colour = frame.rgb.astype(np.float32) / 255
    silhouette = np.ones_like(frame.depth)
    silhouette[:10] = 0.3
    depth = solid_depth(RenderedView(colour, frame.depth, silhouette))
    assert (depth[:10] == 0).all()
    # Where it is kept it is what it was; the mean of two surfaces, as at a blurred edge, is not.
    kept = depth > 0
    assert kept[10:].mean() > 0.85
    np.testing.assert_array_equal(depth[kept], frame.depth[kept])
    blurred = cv2.blur(frame.depth, (3, 3))
    wrong = np.abs(blurred - frame.depth) > 0.2
    assert wrong.sum() > 50
    assert (
        solid_depth(RenderedView(colour, blurred, np.ones_like(blurred)))[wrong] == 0
    ).mean() > 0.95
