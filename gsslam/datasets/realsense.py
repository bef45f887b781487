"""Intel RealSense cameras, through pyrealsense2 (extra ``realsense``)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from gsslam.camera import Camera
from gsslam.datasets.images import measured
from gsslam.datasets.rectify import Calibration, ColourRectifier, DepthRectifier, distorted
from gsslam.errors import BadFrameError, DatasetError
from gsslam.extras import require
from gsslam.frame import Frame

_SIZE, _FRAMES_PER_SECOND = (640, 480), 30
# A camera that delivers nothing for so long (milliseconds) was unplugged.
_TIMEOUT_MS = 5000


class RealSenseCamera:
    """The first RealSense camera found; depth is aligned to colour, and both are undistorted."""

    name = "live/realsense"

    def __init__(self, resolution: tuple[int, int] | None = None) -> None:
        """Start the camera with colour and depth of ``resolution`` (width, height), 30 a second.

        Raises DatasetError where there is no camera or it cannot do that.
        """
        self._rs: Any = require("pyrealsense2", "realsense", "a RealSense camera")
        self._stopped = threading.Event()
        rs, (width, height) = self._rs, resolution or _SIZE
        config = rs.config()
        config.enable_stream(rs.stream.color, width, height, rs.format.rgb8, _FRAMES_PER_SECOND)
        config.enable_stream(rs.stream.depth, width, height, rs.format.z16, _FRAMES_PER_SECOND)
        self._pipeline = rs.pipeline()
        try:
            profile = self._pipeline.start(config)
            stream = profile.get_stream(rs.stream.color).as_video_stream_profile()
            metres = profile.get_device().first_depth_sensor().get_depth_scale()
        except RuntimeError as error:
            raise DatasetError(
                f"no RealSense camera delivers colour and depth of {width}x{height}, "
                f"{_FRAMES_PER_SECOND} a second: {error}; is it plugged in, and into USB 3?"
            ) from error
        self._align = rs.align(rs.stream.color)
        # The camera says 0.0010000000475 for a millimetre.
        self._depth_scale = float(np.round(1 / metres, 2))
        lens = calibration_of(stream.get_intrinsics())
        self._camera = lens.pinhole()
        self._to_colour = ColourRectifier(lens, self._camera)
        self._to_depth = DepthRectifier(lens, self._camera, self._depth_scale)

    @property
    def camera(self) -> Camera:
        """The camera of every frame."""
        return self._camera

    @property
    def depth_scale(self) -> float:
        """Value of its depth at one metre."""
        return self._depth_scale

    def frames(self) -> Iterator[Frame]:
        """Yield frames as they are taken, until ``stop``; raises DatasetError where it fails."""
        index = 0
        while not self._stopped.is_set():
            try:
                images = self._align.process(self._pipeline.wait_for_frames(_TIMEOUT_MS))
            except RuntimeError as error:
                if self._stopped.is_set():
                    return
                raise DatasetError(f"the RealSense camera stopped: {error}") from error
            colour, depth = images.get_color_frame(), images.get_depth_frame()
            if not colour or not depth:
                continue
            try:
                raw = measured(np.array(depth.get_data(), dtype=np.uint16), "from the camera")
            except BadFrameError:
                continue  # a hand before the camera
            yield Frame(
                index=index,
                timestamp=colour.get_timestamp() / 1000,
                rgb=self._to_colour(np.array(colour.get_data(), dtype=np.uint8)),
                depth=self._to_depth(raw),
                camera=self._camera,
            )
            index += 1

    def stop(self) -> None:
        """Stop the camera."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._pipeline.stop()


def calibration_of(intrinsics: Any) -> Calibration:
    """Return the colour camera that pyrealsense2's ``intrinsics`` describe.

    Its pixel centres lie at integers. Raises DatasetError for a lens that gsslam cannot undo.
    """
    names = ("width", "height", "fx", "fy")
    width, height, fx, fy = (getattr(intrinsics, name) for name in names)
    camera = Camera(width, height, fx, fy, intrinsics.ppx + 0.5, intrinsics.ppy + 0.5)
    k1, k2, p1, p2, k3 = (float(value) for value in intrinsics.coeffs)
    lens = Calibration(camera, (k1, k2, p1, p2, k3))
    model = str(intrinsics.model).rpartition(".")[2]
    if not lens.is_distorted or model in ("none", "brown_conrady", "modified_brown_conrady"):
        return lens if model != "none" else Calibration(camera)
    if model != "inverse_brown_conrady":
        raise DatasetError(f"the RealSense camera has the lens model {model}, which is unknown")
    return Calibration(camera, _inverted(lens))


def _inverted(lens: Calibration) -> tuple[float, ...]:
    """Return the coefficients whose distortion undoes that of ``lens``, by least squares.

    RealSense's inverse model leads from distorted to undistorted points. Brown's formula is linear
    in its coefficients, and fits the inverse to a small part of a pixel.
    """
    camera = lens.camera
    columns = (np.linspace(0, camera.width, 33) - camera.cx) / camera.fx
    rows = (np.linspace(0, camera.height, 25) - camera.cy) / camera.fy
    xd, yd = (grid.ravel() for grid in np.meshgrid(columns, rows))
    x, y = distorted(xd, yd, lens.distortion)
    r2 = x * x + y * y
    in_x = [x * r2, x * r2**2, 2 * x * y, r2 + 2 * x * x, x * r2**3]
    in_y = [y * r2, y * r2**2, r2 + 2 * y * y, 2 * x * y, y * r2**3]
    A = np.concatenate([np.stack(in_x, axis=1), np.stack(in_y, axis=1)])
    b = np.concatenate([xd - x, yd - y])
    solution = np.linalg.lstsq(A, b, rcond=None)[0]
    return tuple(float(value) for value in solution)
