"""The pinhole camera."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from gsslam import Camera, ConfigError


def test_matrix_projects_a_point_to_its_pixel() -> None:
    camera = Camera(640, 480, 517.3, 516.5, 319.1, 255.8)
    u, v, w = camera.matrix() @ [0.2, -0.1, 2.0]
    assert u / w == pytest.approx(517.3 * 0.1 + 319.1)
    assert v / w == pytest.approx(-516.5 * 0.05 + 255.8)


def test_resized_keeps_rays_and_the_pixel_convention() -> None:
    camera = Camera(640, 480, 517.3, 516.5, 319.1, 255.8)
    small = camera.resized(320, 160)
    assert (small.width, small.height) == (320, 160)
    # The image's corners and the ray through any point of it stay where they are.
    for u, v in ((0, 0), (640, 480), (17.25, 401.5)):
        ray = np.linalg.solve(camera.matrix(), [u, v, 1])
        assert small.matrix() @ ray == pytest.approx([u / 2, v / 3, 1])
    assert small.resized(640, 480) == camera


def test_resized_agrees_with_area_resampling_of_an_image() -> None:
    camera = Camera(64, 48, 50.0, 50.0, 20.0, 30.0)
    # A spot around the principal point stays around it.
    rows, columns = np.mgrid[:48, :64] + 0.5
    spot = np.exp(-((columns - camera.cx) ** 2 + (rows - camera.cy) ** 2) / 18)
    half = cv2.resize(spot, (32, 24), interpolation=cv2.INTER_AREA)
    rows, columns = np.mgrid[:24, :32] + 0.5
    small = camera.resized(32, 24)
    assert (half * columns).sum() / half.sum() == pytest.approx(small.cx, abs=1e-3)
    assert (half * rows).sum() / half.sum() == pytest.approx(small.cy, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 480, 500, 500, 320, 240), "camera size 0x480"),
        ((640, -1, 500, 500, 320, 240), "camera size 640x-1"),
        ((640, 480, 0, 500, 320, 240), "fx=0"),
        ((640, 480, 500, float("nan"), 320, 240), "fy=nan"),
        ((640, 480, float("inf"), 500, 320, 240), "fx=inf"),
        ((640, 480, 500, 500, float("nan"), 240), "cx=nan"),
    ],
)
def test_impossible_cameras_are_refused(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Camera(*arguments)  # type: ignore[arg-type]
