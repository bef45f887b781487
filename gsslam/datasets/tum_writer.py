"""Writing of a sequence in the TUM benchmark's layout, with the camera beside it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TextIO

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.camera_file import CAMERA_FILE
from gsslam.errors import OutputError
from gsslam.files import atomic_path
from gsslam.frame import Frame
from gsslam.trajectory import Trajectory

# TUM's own value of a depth image at one metre.
DEPTH_SCALE = 5000.0
_LARGEST = 65534  # 65535 means that nothing was measured
# Least compression: most of the gain at a fraction of the time.
_PNG = (cv2.IMWRITE_PNG_COMPRESSION, 1)


class TumWriter:
    """Writes images, ``rgb.txt``, ``depth.txt``, ``camera.yaml`` and ``groundtruth.txt``.

    To be used in a ``with`` statement. Images and lists are on the disk after every frame, so that
    whatever ends the program leaves a sequence that can be opened.
    """

    def __init__(self, folder: Path, camera: Camera, depth_scale: float = DEPTH_SCALE) -> None:
        """Begin in an existing ``folder``; ``depth_scale`` is a depth image's value at a metre."""
        self.folder = folder
        # Measurements too far away for 16 bits, which are left out.
        self.too_far = 0
        self._camera = camera
        self._depth_scale = depth_scale
        self._lists: dict[str, TextIO] = {}
        self._names: set[str] = set()
        self._times: list[float] = []
        self._poses: list[NDArray[np.float64]] = []

    def __enter__(self) -> TumWriter:
        for kind in ("rgb", "depth"):
            (self.folder / kind).mkdir(parents=True, exist_ok=True)
            file = (self.folder / f"{kind}.txt").open("w", encoding="ascii")
            self._lists[kind] = file
            file.write("# timestamp filename\n")
        camera = self._camera
        values = {
            **{name: getattr(camera, name) for name in ("width", "height", "fx", "fy", "cx", "cy")},
            "pixel_centre": "half",
            "depth_scale": float(self._depth_scale),
        }
        with atomic_path(self.folder / CAMERA_FILE) as path:
            path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="ascii")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self._lists.values():
            file.close()
        if self._poses:
            truth = Trajectory(np.array(self._times), np.stack(self._poses))
            truth.write(self.folder / "groundtruth.txt")

    def add(self, frame: Frame) -> None:
        """Write one frame; raises OutputError where its time is another one's, or it cannot."""
        name = f"{frame.timestamp:.6f}.png"
        if name in self._names:
            raise OutputError(
                f"two frames have the time stamp {frame.timestamp:.6f}, which names files: see "
                "to the time stamps first (gsslam doctor)"
            )
        self._names.add(name)
        images = {
            "rgb": cv2.cvtColor(frame.rgb, cv2.COLOR_RGB2BGR),
            "depth": self._depth_image(frame.depth),
        }
        for kind, image in images.items():
            _, data = cv2.imencode(".png", image, _PNG)
            with atomic_path(self.folder / kind / name) as path:
                path.write_bytes(data.tobytes())
            self._lists[kind].write(f"{frame.timestamp:.6f} {kind}/{name}\n")
            self._lists[kind].flush()
        if frame.T_world_camera is not None:
            self._times.append(frame.timestamp)
            self._poses.append(frame.T_world_camera)

    def _depth_image(self, depth: NDArray[np.float32]) -> NDArray[np.uint16]:
        # In double precision the integers of a 16-bit source come back exactly.
        units = np.rint(depth.astype(np.float64) * self._depth_scale)
        too_far = units > _LARGEST
        self.too_far += int(too_far.sum())
        return np.where(too_far, 0, units).astype(np.uint16)
