"""A run, watched while it goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.frame import Frame
from gsslam.gaussian_map import GaussianMap
from gsslam.results import TrackingResult
from gsslam.viewer.layers import ERROR, frame_picture, layers_of
from gsslam.viewer.pace import Pace
from gsslam.viewer.paths import LivePath, ate_cm, truth_in_world
from gsslam.viewer.scene import Scene
from gsslam.viewer.server import (
    DEFAULT_PORT,
    LOOPBACK,
    address_of,
    sending_thread,
    start_server,
    stop_server,
)
from gsslam.viewer.spheres import MapCopy, Spheres

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset
    from gsslam.slam import Slam

Array = NDArray[np.float64]

_log = logging.getLogger(__name__)

# Shares of one processor's time that the viewer takes for the map and for the rest.
_MAP_SHARE, _FRAME_SHARE = 0.015, 0.01
# Seconds between two drawings at least.
_SHORTEST_MAP, _SHORTEST_FRAME = 0.25, 0.05
# Frames over which the speed is taken.
_SPEED_FRAMES = 30


@dataclass(frozen=True)
class _Seen:
    """The newest frame; in no way connected with what the run goes on to do."""

    frame: Frame
    result: TrackingResult
    frames_per_s: float


class LiveViewer:
    """An observer that shows a run in the browser.

    The run's threads only leave the newest frame, and now and then a copy of the map, where a
    thread of the viewer finds it; what comes while that is busy replaces what it has not taken. It
    takes only a small share of a processor, so that drawing becomes rarer, not tracking slower.
    Whatever goes wrong here ends the viewer and leaves the run alone.
    """

    # What is told by on_start.
    _scene: Scene
    _path: LivePath
    _camera: Camera
    _low_pass: float

    def __init__(self, host: str = LOOPBACK, port: int = DEFAULT_PORT) -> None:
        """Raise ConfigError where there is no viser, or no such port to listen on."""
        self._server = start_server(host, port)
        self.address = address_of(self._server)
        # Nearly all that is sent is the map.
        self._map_pace = Pace(_MAP_SHARE, _SHORTEST_MAP, sending_thread(self._server))
        self._frame_pace = Pace(_FRAME_SHARE, _SHORTEST_FRAME)
        # Handed over by the run, the newest only.
        self._seen: _Seen | None = None
        self._map: MapCopy | None = None
        self._hungry = True
        self._changed = self._ended = False
        self._wake = threading.Condition()
        # Appended to by the run, read by the viewer.
        self._truth: list[Array | None] = []
        self._times: deque[float] = deque(maxlen=_SPEED_FRAMES)
        # The viewer's own.
        self._last: _Seen | None = None
        self._spheres: Spheres | None = None
        self._numbers: dict[str, str] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="gsslam-viewer", daemon=True)

    def __enter__(self) -> LiveViewer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the viewer; browsers that are connected say so."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        stop_server(self._server)

    def on_start(self, dataset: Dataset, config: SlamConfig, slam: Slam) -> None:
        """Prepare the scene, and ask for the maps and poses that are to come."""
        self._camera, self._low_pass = dataset.camera, config.map.low_pass
        title = f"gsslam: {dataset.name}"
        self._scene = Scene(self._server, self._camera, title=title, on_change=self._on_change)
        frames = slam.watch(self._on_map)
        # Those before a checkpoint: their truth is not known here.
        self._truth.extend([None] * len(frames))
        self._path = LivePath(frames)
        self._thread.start()

    def on_frame(self, frame: Frame, result: TrackingResult) -> None:
        """Leave a frame for the viewer's thread."""
        self._times.append(time.perf_counter())
        elapsed = self._times[-1] - self._times[0]
        speed = (len(self._times) - 1) / elapsed if elapsed > 0 else 0.0
        self._truth.append(frame.T_world_camera)
        with self._wake:
            self._seen = _Seen(frame, result, speed)
            self._wake.notify()

    def on_end(self, slam: Slam) -> None:
        """Show the finished map, however lately the one before was shown."""
        self._hungry = True
        self._on_map(slam.map)
        with self._wake:
            self._ended = True
            self._wake.notify()

    def _on_map(self, spheres: GaussianMap) -> None:
        """Copy a map for the viewer's thread, if that has drawn the one before."""
        if not self._hungry:
            return
        self._hungry = False
        try:
            copied = MapCopy.of_map(spheres)
        except Exception:  # no memory, say: the run may still have what it needs
            _log.exception("the viewer shows no more maps; the run goes on")
            return
        with self._wake:
            self._map = copied
            self._wake.notify()

    def _on_change(self) -> None:
        with self._wake:
            self._changed = True
            self._wake.notify()

    def _serve(self) -> None:
        """Draw what is new until the viewer is closed; the viewer's thread."""
        try:
            while self._wait():
                self._draw()
        except Exception:  # of any kind: the run is worth more than its picture
            _log.exception("the viewer stopped; the run goes on")
            self._hungry = False

    def _wait(self) -> bool:
        """Return when there is something to draw and time for it; False: the viewer is closed."""
        with self._wake:
            while not self._closing:
                pause = self._pause()
                if pause is not None and pause <= 0:
                    return True
                self._wake.wait(pause)
        return False

    def _pause(self) -> float | None:
        """Return how long to wait before drawing, None where there is nothing to draw."""
        if self._ended or self._changed:
            return 0.0
        pauses = [self._frame_pace.remaining()] if self._seen is not None else []
        if self._map is not None:
            pauses.append(self._map_pace.remaining())
        return min(pauses, default=None)

    def _draw(self) -> None:
        with self._wake:
            at_once, self._changed, self._ended = self._changed or self._ended, False, False
            self._last, self._seen = self._seen or self._last, None
            copied = None
            if self._map is not None and (at_once or self._map_pace.remaining() <= 0):
                copied, self._map = self._map, None
        if copied is not None or at_once:
            with self._map_pace.work():
                self._draw_map(copied, self._last)
        if copied is not None:
            self._hungry = True
        if self._last is not None:
            with self._frame_pace.work():
                self._draw_frame(self._last)

    def _draw_map(self, copied: MapCopy | None, seen: _Seen | None) -> None:
        """Draw all that changes with the map."""
        pose = np.eye(4) if seen is None else seen.result.T_world_camera
        if copied is not None:
            self._spheres = copied.spheres()
            self._scene.offer_layers(layers_of(self._spheres, has_images=True))
        if self._spheres is not None:
            self._scene.show_spheres(self._spheres, pose)
        self._draw_paths()

    def _draw_paths(self) -> None:
        poses = self._path.poses()
        self._scene.show_path(poses[:, :3, 3])
        self._scene.show_keyframes(self._path.keyframes())
        truths = list(zip(poses, self._truth, strict=False))
        pairs = [(pose, truth) for pose, truth in truths if truth is not None]
        if len(pairs) > 1:
            estimate, truth = (np.array(list(side)) for side in zip(*pairs, strict=True))
            truth = truth_in_world(estimate, truth)
            self._scene.show_truth(truth[:, :3, 3])
            self._numbers["ATE RMSE so far"] = f"{ate_cm(estimate, truth):.2f} cm"

    def _draw_frame(self, seen: _Seen) -> None:
        frame, result = seen.frame, seen.result
        measured = frame.depth[frame.depth > 0]
        if len(measured):
            self._scene.place(result.T_world_camera, float(np.median(measured)))
        view = None
        if self._scene.layer == ERROR and self._spheres is not None:
            exposure = (result.gain, result.bias)
            pose = result.T_world_camera
            view = self._spheres.view(self._camera, pose, self._low_pass, exposure)
        picture = frame_picture(self._scene.layer, frame, view)
        self._scene.show_camera(result.T_world_camera, picture, is_lost=not result.tracked)
        numbers = {
            "frame": f"{frame.index}" + ("" if result.tracked else f", lost: {result.reason}"),
            "frames/s": f"{seen.frames_per_s:.1f}",
            "spheres": f"{result.spheres:,}",
            "memory counted": f"{result.memory_mb:,.0f} MB",
        }
        self._scene.show_numbers({**numbers, **self._numbers})
