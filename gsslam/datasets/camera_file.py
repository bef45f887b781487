"""``camera.yaml``: the calibration that lies beside a recording of one's own."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from gsslam.datasets.catalogue import CameraEntry, MotionEntry, Positive, read_yaml
from gsslam.datasets.sequence import Sensor
from gsslam.errors import DatasetError

CAMERA_FILE = "camera.yaml"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class CameraFile(CameraEntry):
    """The content of ``camera.yaml``: the colour camera, and how depth is stored."""

    # Value of a depth image at one metre.
    depth_scale: Positive
    # Used for time stamps where file names are no decimal numbers.
    fps: Positive = 30.0
    # Only where depth is not registered to colour: its camera, and depth to colour camera points.
    depth_camera: CameraEntry | None = None
    T_color_depth: MotionEntry | None = None

    def sensor(self) -> Sensor:
        """Return both cameras."""
        depth, motion = self.depth_camera, self.T_color_depth
        return Sensor(
            colour=self.calibration(),
            depth_scale=self.depth_scale,
            depth=depth.calibration() if depth else None,
            T_color_depth=motion.matrix() if motion else None,
        )


def read_camera(path: Path) -> CameraFile:
    """Read a ``camera.yaml``; raises DatasetError where it is missing or wrong."""
    camera = read_yaml(path, CameraFile)
    if (camera.depth_camera is None) != (camera.T_color_depth is None):
        raise DatasetError(
            f"{path}: depth_camera and T_color_depth go together: give both for unregistered "
            "depth, else neither"
        )
    return camera
