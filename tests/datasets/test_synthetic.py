import itertools

import numpy as np
import pytest

from gsslam.datasets import open_dataset
from gsslam.datasets.room import BOXES, PATH_PERIOD, ROOM, SPHERES, build_room, camera_pose
from gsslam.datasets.scene import Rectangle, Sphere
from gsslam.geometry import inverse, log_so3

SMALL = (160, 120)


def backproject(depth: np.ndarray, camera, pose: np.ndarray) -> np.ndarray:
    u = (np.arange(camera.width) + 0.5 - camera.cx) / camera.fx
    v = (np.arange(camera.height) + 0.5 - camera.cy) / camera.fy
    rays = np.stack([*np.meshgrid(u, v), np.ones(depth.shape)]) * depth
    return np.einsum("ij,jhw->ihw", pose[:3, :3], rays) + pose[:3, 3, None, None]


def distance_to_surfaces(points: np.ndarray) -> np.ndarray:
    """Distance of each point (3, ...) to the nearest surface, worked out without any ray."""
    distances = []
    for surface in build_room():
        if isinstance(surface, Sphere):
            centre = surface.centre.reshape(3, *[1] * (points.ndim - 1))
            distances.append(np.abs(np.linalg.norm(points - centre, axis=0) - surface.radius))
        else:
            assert isinstance(surface, Rectangle)
            low, high = (
                corner.reshape(3, *[1] * (points.ndim - 1))
                for corner in (surface.low, surface.high)
            )
            distances.append(np.linalg.norm(points - np.clip(points, low, high), axis=0))
    return np.min(distances, axis=0)


def is_free(points: np.ndarray) -> np.ndarray:
    """Whether points (3, H, W) lie in the room and in none of its boxes and spheres."""

    def is_in_box(low: tuple[float, ...], high: tuple[float, ...], margin: float) -> np.ndarray:
        above = points > np.reshape(low, (3, 1, 1)) + margin
        below = points < np.reshape(high, (3, 1, 1)) - margin
        return (above & below).all(axis=0)

    free = is_in_box(*ROOM, margin=0)
    for box in BOXES:
        free &= ~is_in_box(*box, margin=1e-6)
    for centre, radius in SPHERES:
        free &= np.linalg.norm(points - np.reshape(centre, (3, 1, 1)), axis=0) > radius - 1e-6
    return free


def test_frames_have_the_promised_form() -> None:
    dataset = open_dataset("synthetic/room")
    assert len(dataset) == 60
    assert (dataset.camera.width, dataset.camera.height) == (320, 240)
    frame = dataset[59]
    assert frame.rgb.shape == (240, 320, 3)
    assert frame.rgb.dtype == np.uint8
    assert frame.depth.shape == (240, 320)
    assert frame.depth.dtype == np.float32
    assert frame.timestamp == 59 / 30
    truth = dataset.ground_truth
    assert truth is not None
    np.testing.assert_array_equal(truth.T_world_camera[59], frame.T_world_camera)
    # Colourful and textured: no channel is flat, and neighbours differ.
    assert (frame.rgb.reshape(-1, 3).std(axis=0) > 25).all()
    assert np.abs(np.diff(frame.rgb.astype(float), axis=1)).mean() > 2
    assert ((frame.rgb > 0) & (frame.rgb < 255)).mean() > 0.98


@pytest.mark.parametrize("step", [0, 77, 150, 200])
def test_depth_is_exact(step: int) -> None:
    dataset = open_dataset("synthetic/room", resolution=SMALL, max_frames=PATH_PERIOD)
    frame = dataset[step]
    assert frame.T_world_camera is not None
    points = backproject(frame.depth.astype(np.float64), frame.camera, frame.T_world_camera)
    assert distance_to_surfaces(points).max() < 1e-6  # float32 of 4 m
    # The way from the camera to the measurement lies in free space.
    origin = frame.T_world_camera[:3, 3, None, None]
    for share in np.linspace(0, 0.999, 30):
        assert is_free(origin + (points - origin) * share).all()


def test_colour_stays_on_the_surfaces() -> None:
    """A frame's colours, carried by depth and poses, are the colours of another frame."""
    dataset = open_dataset("synthetic/room")
    a, b = dataset[10], dataset[22]
    assert a.T_world_camera is not None
    assert b.T_world_camera is not None
    world = backproject(a.depth.astype(np.float64), a.camera, a.T_world_camera)
    T = inverse(b.T_world_camera)
    x, y, z = np.einsum("ij,jhw->ihw", T[:3, :3], world) + T[:3, 3, None, None]
    u = b.camera.fx * x / z + b.camera.cx - 0.5
    v = b.camera.fy * y / z + b.camera.cy - 0.5
    inside = (u > 1) & (u < 318) & (v > 1) & (v < 238)
    u0, v0 = np.floor(u[inside]).astype(int), np.floor(v[inside]).astype(int)
    du, dv = (u[inside] - u0)[:, None], (v[inside] - v0)[:, None]
    rgb = b.rgb.astype(float)
    seen = (rgb[v0, u0] * (1 - du) + rgb[v0, u0 + 1] * du) * (1 - dv) + (
        rgb[v0 + 1, u0] * (1 - du) + rgb[v0 + 1, u0 + 1] * du
    ) * dv
    visible = np.abs(b.depth[v0, u0] - z[inside]) < 0.03
    error = np.abs(seen - a.rgb[inside])[visible].max(axis=1)
    assert visible.mean() > 0.9
    assert np.median(error) < 2
    assert (error < 12).mean() > 0.95


def test_supersampling_averages_edges() -> None:
    """The mean of a block of a fine image is the pixel of a coarse one."""
    fine = open_dataset("synthetic/room", resolution=(320, 240))[5].rgb.astype(float)
    coarse = open_dataset("synthetic/room", resolution=(160, 120))[5].rgb.astype(float)
    difference = np.abs(fine.reshape(120, 2, 160, 2, 3).mean(axis=(1, 3)) - coarse)
    assert difference.mean() < 0.8
    assert (difference < 6).mean() > 0.98


def test_path_is_smooth_closed_and_of_modest_speed() -> None:
    poses = np.stack([camera_pose(i) for i in range(PATH_PERIOD + 1)])
    np.testing.assert_allclose(poses[PATH_PERIOD], poses[0], atol=1e-12)
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    turns = np.degrees(
        [np.linalg.norm(log_so3(a[:3, :3].T @ b[:3, :3])) for a, b in itertools.pairwise(poses)]
    )
    assert 1.0 < steps[:60].sum() < 1.6
    assert 30 < turns[:60].sum() < 45
    assert 0.01 < steps.min() < steps.max() < 0.022
    assert turns.max() < 1.5
    assert np.abs(np.diff(steps)).max() < 1e-3  # no jerk
    for pose in poses:
        R = pose[:3, :3]
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(R) > 0.999
        assert R[2, 1] < -0.8  # the image's down is the world's down


def test_noise_depends_on_seed_and_frame_alone() -> None:
    def frames(order: list[int], **options: int) -> dict[int, bytes]:
        dataset = open_dataset("synthetic/room_noisy", resolution=SMALL, **options)
        return {i: dataset[i].rgb.tobytes() + dataset[i].depth.tobytes() for i in order}

    forwards, backwards = frames([0, 1, 2, 4]), frames([4, 2, 1, 0])
    assert forwards == backwards
    assert frames([0, 1, 2], stride=2)[2] == forwards[4]
    assert frames([1], seed=1)[1] != forwards[1]
    assert forwards[0] != forwards[1]


def test_noise_is_that_of_a_kinect() -> None:
    exact = open_dataset("synthetic/room")[20]
    noisy = open_dataset("synthetic/room_noisy")[20]
    measured = noisy.depth > 0
    assert 0.9 < measured.mean() < 0.99
    z, error = exact.depth[measured].astype(float), (noisy.depth - exact.depth)[measured]
    step = z**2 / 348  # one eighth of a pixel of disparity
    expected = np.sqrt((0.0012 + 0.0019 * (z - 0.4) ** 2) ** 2 + step**2 / 12)
    normalized = error / expected
    assert abs(normalized.mean()) < 0.03
    assert abs(normalized.std() - 1) < 0.05
    # The measurement takes few values: whole steps of disparity.
    disparity = 348 / noisy.depth[measured].astype(float)
    np.testing.assert_allclose(disparity, np.rint(disparity), atol=1e-4)
    # Beside every jump of depth nothing is measured.
    jump = np.abs(np.diff(exact.depth, axis=1)) > 0.05 * exact.depth[:, 1:]
    assert jump.any()
    assert not measured[:, 1:][jump].any()
    assert not measured[:, :-1][jump].any()
    difference = noisy.rgb.astype(float) - exact.rgb
    assert 1.5 < difference[60:180].std() < 5


def test_exposure_drifts_by_a_few_percent() -> None:
    exact = open_dataset("synthetic/room", resolution=SMALL, max_frames=150)
    noisy = open_dataset("synthetic/room_noisy", resolution=SMALL, max_frames=150)
    gains = [float(noisy[i].rgb.mean() / exact[i].rgb.mean()) for i in (0, 37, 75, 112)]
    np.testing.assert_allclose(gains, [1, 1.03, 1, 0.97], atol=0.004)


def test_stride_and_length() -> None:
    dataset = open_dataset("synthetic/room", stride=4)
    assert len(dataset) == 15
    assert len(open_dataset("synthetic/room", stride=4, max_frames=100)) == 100
    again = open_dataset("synthetic/room", resolution=SMALL)
    frame = open_dataset("synthetic/room", resolution=SMALL, stride=4)[3]
    assert frame.index == 3
    np.testing.assert_array_equal(frame.rgb, again[12].rgb)
    with pytest.raises(IndexError):
        dataset[15]
