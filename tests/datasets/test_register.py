import numpy as np
import pytest

from gsslam.camera import Camera
from gsslam.datasets.rectify import Calibration
from gsslam.datasets.register import DepthRegistration
from gsslam.datasets.room import build_room, camera_pose
from gsslam.datasets.scene import cast_rays
from gsslam.geometry import exp_se3, inverse

DEPTH_CAMERA = Camera(320, 240, 292.5, 292.5, 160.5, 120.5)
COLOUR_CAMERA = Camera(320, 240, 264.6, 264.6, 163.5, 121.7)
T_COLOR_DEPTH = exp_se3(np.array([-0.0176, 0.001, 0.002, 0.0105, -0.014, 0.0036]))


def test_plane_stays_a_plane() -> None:
    """A tilted plane, without noise, arrives where ray and plane meet."""
    normal, offset = np.array([0.3, -0.2, -1.0]), 2.0  # depth camera points: normal . p = -offset
    x = (np.arange(320) + 0.5 - DEPTH_CAMERA.cx) / DEPTH_CAMERA.fx
    y = (np.arange(240) + 0.5 - DEPTH_CAMERA.cy) / DEPTH_CAMERA.fy
    x, y = np.meshgrid(x, y)
    raw = np.rint(-offset / (normal[0] * x + normal[1] * y + normal[2]) * 10000).astype(np.uint16)
    for width, height in ((160, 120), (320, 240), (640, 480)):
        target = COLOUR_CAMERA.resized(width, height)
        found = DepthRegistration(Calibration(DEPTH_CAMERA), target, T_COLOR_DEPTH, 10000)(raw)
        u = (np.arange(width) + 0.5 - target.cx) / target.fx
        v = (np.arange(height) + 0.5 - target.cy) / target.fy
        rays = np.stack([*np.meshgrid(u, v), np.ones((height, width))])
        R, t = T_COLOR_DEPTH[:3, :3], T_COLOR_DEPTH[:3, 3]
        moved = R @ normal
        expected = (-offset + moved @ t) / np.tensordot(moved, rays, axes=1)
        inner = np.s_[height // 8 : -height // 8, width // 8 : -width // 8]
        assert (found[inner] > 0).all(), "a hole in the middle of a plane"
        relative = (found / expected - 1)[inner]
        assert np.abs(relative).max() < 3e-3  # within one depth pixel of slope
        assert abs(relative.mean()) < 1e-4  # not biased to the front


@pytest.mark.parametrize("size", [(160, 120), (320, 240)])
def test_room_seen_by_two_cameras(size: tuple[int, int]) -> None:
    room, T_world_color = build_room(), camera_pose(20)
    T_world_depth = T_world_color @ T_COLOR_DEPTH
    measured = cast_rays(room, DEPTH_CAMERA, T_world_depth, np.float64).depth
    target = COLOUR_CAMERA.resized(*size)
    expected = cast_rays(room, target, T_world_color, np.float64).depth
    raw = np.rint(measured * 10000).astype(np.uint16)
    found = DepthRegistration(Calibration(DEPTH_CAMERA), target, T_COLOR_DEPTH, 10000)(raw)
    known = found > 0
    error = (found - expected)[known]
    assert known.mean() > 0.8  # the colour camera's view is wider: (264.6 / 292.5)^2
    assert np.median(np.abs(error)) < 2e-3  # a measurement is up to half a pixel (6 mm) aside
    assert abs(np.median(error)) < 2e-4  # and no side is preferred
    assert (np.abs(error) < 0.02).mean() > 0.95  # edges may fall to the other side


def test_nearest_surface_hides_what_lies_behind() -> None:
    raw = np.full((240, 320), 3000, dtype=np.uint16)
    raw[100:140, 140:180] = 1000
    move = np.eye(4)
    move[0, 3] = 0.05  # parallax: 14.6 pixels at 1 m, 4.9 at 3 m
    found = DepthRegistration(Calibration(DEPTH_CAMERA), DEPTH_CAMERA, move, 1000)(raw)
    row = found[120]
    near = np.flatnonzero(np.isclose(row, 1.0))
    assert near.min() in (154, 155)
    assert near.max() in (194, 195)
    assert set(np.unique(found.round(5))) == {0, 1, 3}  # surfaces never mix


def test_no_motion_gives_the_same_image() -> None:
    raw = np.random.default_rng(0).integers(500, 4000, (240, 320)).astype(np.uint16)
    raw[::7, ::5] = 0
    found = DepthRegistration(Calibration(DEPTH_CAMERA), DEPTH_CAMERA, np.eye(4), 1000)(raw)
    np.testing.assert_allclose(found, raw / 1000, rtol=1e-6)


def test_points_behind_the_colour_camera_vanish() -> None:
    raw = np.full((240, 320), 1000, dtype=np.uint16)
    backwards = inverse(exp_se3(np.array([0, 0, 2.0, 0, 0, 0])))
    assert not DepthRegistration(Calibration(DEPTH_CAMERA), COLOUR_CAMERA, backwards, 1000)(
        raw
    ).any()
