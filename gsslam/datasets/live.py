"""Live cameras: one Protocol, and a dataset that records what one delivers."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.base import Dataset
from gsslam.datasets.images import read_colour, read_depth
from gsslam.datasets.tum_writer import TumWriter
from gsslam.errors import DatasetError, OutputError
from gsslam.frame import Frame
from gsslam.trajectory import Trajectory

# What names of live cameras begin with.
LIVE_PREFIX = "live/"
CAMERAS = ("realsense",)
# Frames kept for a reader that comes a little later than another one.
_KEPT = 8


class LiveCamera(Protocol):
    """A camera that delivers frames at its own pace."""

    @property
    def name(self) -> str:
        """Such as ``live/realsense``."""
        ...

    @property
    def camera(self) -> Camera:
        """The camera of every frame delivered."""
        ...

    @property
    def depth_scale(self) -> float:
        """Value at one metre of the integers that its depth comes in."""
        ...

    def frames(self) -> Iterator[Frame]:
        """Yield frames as they are taken, until ``stop``; their index counts those delivered.

        A frame for which nobody had time is dropped: the newest one comes next. Raises DatasetError
        where the camera fails.
        """
        ...

    def stop(self) -> None:
        """End ``frames`` after the frame on its way; may be called from any thread."""
        ...


def open_camera(name: str, resolution: tuple[int, int] | None = None) -> LiveCamera:
    """Start the camera called ``live/NAME``.

    Raises DatasetError where there is none, ConfigError where its library is missing.
    """
    if name == "live/realsense":
        from gsslam.datasets.realsense import RealSenseCamera

        return RealSenseCamera(resolution)
    known = ", ".join(LIVE_PREFIX + camera for camera in CAMERAS)
    raise DatasetError(f"no live camera {name!r}: there is {known}")


def record(
    camera: LiveCamera,
    folder: Path,
    max_frames: int | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> int:
    """Record ``camera`` into the new or empty ``folder`` until it ends, or Ctrl-C; stop it.

    Returns the number of frames. ``on_progress`` is called with that so far and ``max_frames``.
    Raises DatasetError where the camera fails, OutputError where writing does.
    """
    count = 0
    with contextlib.suppress(KeyboardInterrupt), LiveSequence(camera, folder, max_frames) as frames:
        while max_frames is None or count < max_frames:
            try:
                _ = frames[count]
            except EndOfStreamError:
                break
            count += 1
            if on_progress is not None:
                on_progress(count, max_frames)
    if not count:
        raise DatasetError(f"{camera.name} delivered no frame")
    return count


class EndOfStreamError(DatasetError):
    """A live camera has no more frames."""


class LiveSequence(Dataset):
    """A Dataset of the frames that a camera delivers, recorded in TUM's layout as they come.

    To be used in a ``with`` statement. The next frame is waited for; earlier ones are read back
    from the recording.
    """

    def __init__(self, camera: LiveCamera, folder: Path, max_frames: int | None = None) -> None:
        """Record into the new or empty ``folder``, ``max_frames`` at most."""
        self.folder = folder
        self._source = camera
        self._length = sys.maxsize if max_frames is None else max_frames
        self._frames = camera.frames()
        self._writer = TumWriter(folder, camera.camera, camera.depth_scale)
        self._lock = threading.Lock()
        self._times: list[float] = []
        self._poses: list[NDArray[np.float64] | None] = []
        self._kept: dict[int, Frame] = {}

    def __enter__(self) -> LiveSequence:
        try:
            if self.folder.exists() and any(self.folder.iterdir()):
                raise OutputError(f"{self.folder} is not empty: choose a new folder to record into")
            self._writer.__enter__()
        except OSError as error:
            raise OutputError(f"cannot write {self.folder}: {error.strerror or error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._source.stop()
        self._writer.__exit__(kind, error, traceback)

    @property
    def name(self) -> str:
        """Name of the camera."""
        return self._source.name

    @property
    def camera(self) -> Camera:
        """The camera of every frame."""
        return self._source.camera

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """Seconds of the frames so far, (N,)."""
        return np.array(self._times, dtype=np.float64)

    @property
    def ground_truth(self) -> Trajectory | None:
        """Poses of the frames so far, where a replayed sequence knows them."""
        known = [(t, p) for t, p in zip(self._times, self._poses, strict=False) if p is not None]
        if not known:
            return None
        times, poses = zip(*known, strict=True)
        return Trajectory(np.array(times), np.stack(poses))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Frame:
        """Return frame ``index``, as soon as it is taken; raises DatasetError if none comes."""
        index = range(self._length)[index]
        with self._lock:
            while len(self._times) <= index:
                self._take()
            if index in self._kept:
                return self._kept[index]
        return self._read_back(index)

    def _take(self) -> None:
        frame = next(self._frames, None)
        if frame is None:
            raise EndOfStreamError(f"{self.name} stopped after {len(self._times)} frames")
        frame = replace(frame, index=len(self._times))
        try:
            self._writer.add(frame)
        except OSError as error:
            raise OutputError(f"cannot write {self.folder}: {error.strerror or error}") from error
        self._times.append(frame.timestamp)
        self._poses.append(frame.T_world_camera)
        self._kept[frame.index] = frame
        self._kept.pop(frame.index - _KEPT, None)

    def _read_back(self, index: int) -> Frame:
        name = f"{self._times[index]:.6f}.png"
        depth = read_depth(self.folder / "depth" / name)
        return Frame(
            index=index,
            timestamp=self._times[index],
            rgb=read_colour(self.folder / "rgb" / name),
            depth=depth * np.float32(1 / self._source.depth_scale),
            camera=self.camera,
            T_world_camera=self._poses[index],
        )
