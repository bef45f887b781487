import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.rectify import Calibration, ColourRectifier, DepthRectifier, distorted

CAMERA = Camera(320, 240, 258.6, 258.3, 159.8, 128.2)
FR1 = Calibration(CAMERA, (0.2624, -0.9531, -0.0054, 0.0026, 1.1633))


def scene(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """A smooth picture over normalised image coordinates, 0 to 255."""
    return 127.5 + 60 * np.sin(9 * x + 1) * np.cos(7 * y) + 50 * np.sin(5 * (x + y))


def pinhole_rays(camera: Camera) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = (np.arange(camera.width) + 0.5 - camera.cx) / camera.fx
    y = (np.arange(camera.height) + 0.5 - camera.cy) / camera.fy
    return tuple(np.meshgrid(x, y))


def lens_rays(calibration: Calibration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where each pixel of the distorted image looks: the distortion, undone by iteration."""
    xd, yd = pinhole_rays(calibration.camera)
    x, y = xd, yd
    for _ in range(100):
        x_now, y_now = distorted(x, y, calibration.distortion)
        x, y = x + xd - x_now, y + yd - y_now
    np.testing.assert_allclose(distorted(x, y, calibration.distortion), (xd, yd), atol=1e-9)
    return x, y


def test_distortion_agrees_with_opencv() -> None:
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2))
    rays = np.concatenate([points, np.ones((200, 1))], axis=1)
    zero = np.zeros(3)
    expected, _ = cv2.projectPoints(rays, zero, zero, np.eye(3), np.array(FR1.distortion))
    found = np.stack(distorted(points[:, 0], points[:, 1], FR1.distortion), axis=1)
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("size", [(320, 240), (160, 120), (213, 160)])
def test_undistorted_colour_is_what_a_pinhole_sees(size: tuple[int, int]) -> None:
    image = np.rint(scene(*lens_rays(FR1))).astype(np.uint8)
    target = CAMERA.resized(*size)
    found = ColourRectifier(FR1, target)(np.dstack([image] * 3)).astype(float)
    expected = scene(*pinhole_rays(target))
    inner = np.s_[20:-20, 20:-20]
    error = np.abs(found - expected[..., None])[inner]
    # Rounding gives 0.25 on average; a quarter of a pixel aside would give 0.5 to 0.9.
    assert error.mean() < 0.4
    assert error.max() < 2


@pytest.mark.parametrize("size", [(320, 240), (160, 120), (400, 300)])
def test_depth_is_the_nearest_measurement(size: tuple[int, int]) -> None:
    target = CAMERA.resized(*size)
    u, v = np.meshgrid(np.arange(320), np.arange(240))
    depth = DepthRectifier(FR1, target, depth_scale=1)
    columns, rows = depth(u.astype(np.uint16)), depth(v.astype(np.uint16))
    x, y = distorted(*pinhole_rays(target), FR1.distortion)
    x, y = x * CAMERA.fx + CAMERA.cx, y * CAMERA.fy + CAMERA.cy
    seen = (x > 1) & (x < 319) & (y > 1) & (y < 239)
    # The centre of the pixel that was taken is within half a pixel of the exact place.
    assert np.abs(columns + 0.5 - x)[seen].max() <= 0.5 + 1e-4
    assert np.abs(rows + 0.5 - y)[seen].max() <= 0.5 + 1e-4


def test_depth_outside_the_lens_is_no_measurement() -> None:
    depth = DepthRectifier(FR1, CAMERA, depth_scale=5000)(np.full((240, 320), 5000, np.uint16))
    assert set(np.unique(depth)) == {np.float32(0), np.float32(1)}
    x, y = FR1.source_positions(CAMERA)
    outside = (x < 0) | (x >= 320) | (y < 0) | (y >= 240)
    np.testing.assert_array_equal(depth == 0, outside)
    assert 0.03 < outside.mean() < 0.1


def test_plain_calibration_changes_nothing() -> None:
    random = np.random.default_rng(1)
    image = random.integers(0, 256, (240, 320, 3), dtype=np.uint8)
    raw = random.integers(0, 20000, (240, 320), dtype=np.uint16)
    plain = Calibration(CAMERA)
    np.testing.assert_array_equal(ColourRectifier(plain, CAMERA)(image), image)
    depth = DepthRectifier(plain, CAMERA, depth_scale=5000)(raw)
    np.testing.assert_allclose(depth, raw / 5000, rtol=1e-6)


def test_halving_averages_blocks() -> None:
    image = np.random.default_rng(2).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    found = ColourRectifier(Calibration(CAMERA), CAMERA.resized(160, 120))(image)
    blocks = image.reshape(120, 2, 160, 2, 3).mean(axis=(1, 3))
    assert np.abs(found - blocks).max() <= 0.5


def test_every_pixel_of_the_pinhole_was_seen_and_hardly_more_is_cut_away() -> None:
    pinhole = FR1.pinhole()
    zoom = pinhole.fx / CAMERA.fx
    assert 1.03 < zoom < 1.1
    assert pinhole.fy / CAMERA.fy == pytest.approx(zoom)
    full = np.full((240, 320), 5000, np.uint16)
    assert DepthRectifier(FR1, pinhole, depth_scale=5000)(full).all()
    x, y = FR1.source_positions(pinhole)
    # Somewhere the border touches the edge of what the lens saw.
    edge = np.minimum(np.minimum(x, 320 - x), np.minimum(y, 240 - y))
    assert 0.5 <= edge.min() < 0.55
    image = np.rint(scene(*lens_rays(FR1))).astype(np.uint8)
    found = ColourRectifier(FR1, pinhole)(np.dstack([image] * 3)).astype(float)
    assert np.abs(found - scene(*pinhole_rays(pinhole))[..., None]).max() < 2
    barrel = Calibration(CAMERA, (-0.1, 0.0, 0.0, 0.0, 0.0))
    assert barrel.pinhole() == CAMERA
