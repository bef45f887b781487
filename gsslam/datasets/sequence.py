"""A sequence of images as the sensor gave them: what all recordings have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.images import read_colour, read_depth
from gsslam.datasets.rectify import Calibration, ColourRectifier, DepthRectifier, RawDepth
from gsslam.datasets.register import DepthRegistration
from gsslam.errors import BadFrameError, DatasetError
from gsslam.frame import Frame
from gsslam.trajectory import Trajectory, nearest_within

# Two measurements closer than this in time (seconds) count as simultaneous, as in TUM's benchmark.
MAX_TIME_DIFFERENCE = 0.02

# A scene whose median depth (metres) lies outside was read with a wrong depth scale.
_PLAUSIBLE_DEPTH = (0.05, 100.0)
# How many frames are tried, at opening, to find one that can be read.
_FRAMES_TRIED = 20


class RawFrame(Protocol):
    """One frame as it was recorded; its images are read when they are asked for."""

    @property
    def timestamp(self) -> float:
        """Seconds."""
        ...

    @property
    def T_world_camera(self) -> NDArray[np.float64] | None:
        """Pose (4, 4) of the colour camera, camera points to world points, where it is known."""
        ...

    @property
    def colour_name(self) -> str:
        """What the colour image is called in messages."""
        ...

    @property
    def depth_name(self) -> str:
        """What the depth image is called in messages."""
        ...

    def read_colour(self) -> NDArray[np.uint8]:
        """Return the colour image (H, W, 3), RGB; raises BadFrameError where it is unusable."""
        ...

    def read_depth(self) -> RawDepth:
        """Return the depth image (H, W) in its own unit, 0 where nothing was measured.

        Raises BadFrameError where it is unusable.
        """
        ...


@dataclass(frozen=True)
class FrameFiles:
    """A frame that lies in two image files."""

    # Seconds.
    timestamp: float
    colour: Path
    depth: Path
    # (4, 4) pose of the colour camera, camera points to world points.
    T_world_camera: NDArray[np.float64] | None = None

    @property
    def colour_name(self) -> str:
        """Path of the colour image."""
        return str(self.colour)

    @property
    def depth_name(self) -> str:
        """Path of the depth image."""
        return str(self.depth)

    def read_colour(self) -> NDArray[np.uint8]:
        """Read the colour image (H, W, 3); raises BadFrameError where it is unusable."""
        return read_colour(self.colour)

    def read_depth(self) -> NDArray[np.uint16]:
        """Read the depth image (H, W); raises BadFrameError where it is unusable."""
        return read_depth(self.depth)


@dataclass(frozen=True)
class Sensor:
    """The calibrated cameras that took a sequence."""

    colour: Calibration
    # Value of a depth image at one metre.
    depth_scale: float
    # The camera that took the depth images; None: they are registered, pixel by pixel.
    depth: Calibration | None = None
    # (4, 4) its points to colour camera points; None: both look from the same place.
    T_color_depth: NDArray[np.float64] | None = None

    def depth_mapper(self, target: Camera) -> Callable[[RawDepth], NDArray[np.float32]]:
        """Return what turns a raw depth image into metres at the pixels of ``target``."""
        depth, T_color_depth = self.depth or self.colour, self.T_color_depth
        if T_color_depth is None or np.array_equal(T_color_depth, np.eye(4)):
            return DepthRectifier(depth, target, self.depth_scale)
        return DepthRegistration(depth, target, T_color_depth, self.depth_scale)


class RecordedSequence(Dataset):
    """A Dataset of recorded frames, undistorted and registered when they are asked for."""

    def __init__(
        self, name: str, frames: Sequence[RawFrame], sensor: Sensor, options: ReadOptions
    ) -> None:
        """Select frames and prepare the tables; reads one frame to check sizes and depth scale.

        Raises DatasetError where there is no frame, none of the first can be read, or the depths
        cannot be metres.
        """
        self._name = name
        self._frames = list(frames)[:: options.stride][: options.max_frames]
        if not self._frames:
            raise DatasetError(f"{name}: there is no frame")
        self._sensor = sensor
        self._camera = options.target(sensor.colour.pinhole())
        self._check_depth_scale()

    # Made once an image of that size was read: a file may claim any size of its camera.
    @functools.cached_property
    def _to_colour(self) -> ColourRectifier:
        return ColourRectifier(self._sensor.colour, self._camera)

    @functools.cached_property
    def _to_depth(self) -> Callable[[RawDepth], NDArray[np.float32]]:
        return self._sensor.depth_mapper(self._camera)

    @property
    def name(self) -> str:
        """Catalogue identifier."""
        return self._name

    @property
    def camera(self) -> Camera:
        """The camera of every frame."""
        return self._camera

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """Seconds, (N,)."""
        return np.array([frame.timestamp for frame in self._frames], dtype=np.float64)

    @property
    def ground_truth(self) -> Trajectory | None:
        """Poses of the frames that have one; None where no frame has."""
        posed = [
            (f.timestamp, f.T_world_camera) for f in self._frames if f.T_world_camera is not None
        ]
        if not posed:
            return None
        times, poses = zip(*posed, strict=True)
        return Trajectory(np.array(times, dtype=np.float64), np.stack(poses))

    @property
    def frames(self) -> list[RawFrame]:
        """The frames as they were recorded."""
        return self._frames

    @property
    def depth_scale(self) -> float:
        """Value of a depth image at one metre."""
        return self._sensor.depth_scale

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> Frame:
        """Read frame ``index``; raises BadFrameError where that frame alone is unusable."""
        raw, sensor = self._frames[index], self._sensor
        colour, depth = raw.read_colour(), raw.read_depth()
        _check_size(raw.colour_name, colour, sensor.colour.camera)
        _check_size(raw.depth_name, depth, (sensor.depth or sensor.colour).camera)
        return Frame(
            index=range(len(self))[index],
            timestamp=raw.timestamp,
            rgb=self._to_colour(colour),
            depth=self._to_depth(depth),
            camera=self._camera,
            T_world_camera=raw.T_world_camera,
        )

    def _check_depth_scale(self) -> None:
        depth = self._first_readable().depth
        measured = depth[depth > 0]
        if not measured.size:
            return
        median, scale = float(np.median(measured)), self._sensor.depth_scale
        if not _PLAUSIBLE_DEPTH[0] <= median <= _PLAUSIBLE_DEPTH[1]:
            likely = [f"{s:g}" for s in (1, 1000, 5000) if 0.3 <= median * scale / s <= 10]
            hint = f"; {' or '.join(likely)} would fit" if likely else ""
            raise DatasetError(
                f"{self._name}: depth scale {scale:g} makes the median depth {median:.4g} m, which "
                f"cannot be: the scale is likely off by a factor of 5 or 1000{hint}"
            )

    def _first_readable(self) -> Frame:
        tried = min(len(self), _FRAMES_TRIED)
        for index in range(tried):
            try:
                return self[index]
            except BadFrameError as error:
                reason = error
        raise DatasetError(f"{self._name}: none of the first {tried} frames is usable: {reason}")


def pairs_in_time(colour: NDArray[np.float64], depth: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pair each colour image with the depth image nearest in time, where one is within 20 ms.

    Takes the times of both in seconds, sorted, and returns their indices. A depth image may serve
    two colour images: the frames of the two streams drift against each other, and one-to-one
    pairing would throw colour images away. Raises DatasetError where no pair is found.
    """
    nearest = nearest_within(colour, depth, MAX_TIME_DIFFERENCE)
    pairs = [(i, int(j)) for i, j in enumerate(nearest) if j >= 0]
    if not pairs:
        raise DatasetError(
            f"none of {len(colour)} colour images has one of {len(depth)} depth images within "
            f"{MAX_TIME_DIFFERENCE * 1000:.0f} ms; check that both use the same clock"
        )
    return pairs


def _check_size(name: str, image: NDArray[np.generic], camera: Camera) -> None:
    height, width = image.shape[:2]
    if (width, height) != (camera.width, camera.height):
        raise BadFrameError(
            f"image {name} is {width}x{height} where the calibration says "
            f"{camera.width}x{camera.height}; colour and registered depth must both have that size"
        )
