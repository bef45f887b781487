"""ROS 1 bags, ROS 2 bags and MCAP files: a colour and a depth topic, their camera_info, and tf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.bag_file import CAMERA_INFO, TRANSFORMS, BagFile, MessageAt
from gsslam.datasets.bag_images import colour_of, depth_of, depth_scale_of
from gsslam.datasets.bag_topics import (
    BagSettings,
    Topics,
    calibration_of,
    choose_topics,
    frame_of,
    is_aligned,
    read_settings,
    settings_path,
)
from gsslam.datasets.bag_transforms import TransformTree
from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import CameraEntry, Entry
from gsslam.datasets.rectify import Calibration, RawDepth
from gsslam.datasets.sequence import (
    MAX_TIME_DIFFERENCE,
    RecordedSequence,
    Sensor,
    pairs_in_time,
)
from gsslam.errors import BadFrameError, DatasetError
from gsslam.trajectory import nearest_within

# Poses in a frame of this name are those of a motion capture or of a map, not dead reckoning.
_WORLDS = ("world", "map", "mocap", "vicon", "optitrack", "qualisys", "ground_truth")
# Nanoseconds of other messages that are still read behind the last frame wanted.
_MARGIN = 1_000_000_000
_NEVER = 1 << 63
# Colour images after which it is looked again whether there are enough frames.
_MANY = 30


@dataclass(frozen=True)
class _BagFrame:
    """A frame that lies in two messages."""

    timestamp: float
    colour: MessageAt
    depth: MessageAt
    T_world_camera: NDArray[np.float64] | None = None

    @property
    def colour_name(self) -> str:
        return str(self.colour)

    @property
    def depth_name(self) -> str:
        return str(self.depth)

    def read_colour(self) -> NDArray[np.uint8]:
        return colour_of(_message(self.colour), self.colour_name)

    def read_depth(self) -> RawDepth:
        return depth_of(_message(self.depth), self.depth_name)


@dataclass
class _Contents:
    """What one pass over a bag finds."""

    # Time (ns) and place of every image.
    colour: list[tuple[int, MessageAt]] = field(default_factory=list)
    depth: list[tuple[int, MessageAt]] = field(default_factory=list)
    # The first message of every topic.
    first: dict[str, Any] = field(default_factory=dict)
    transforms: TransformTree = field(default_factory=TransformTree)

    def times(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the times of all images, colour and depth, in seconds and in order."""
        colour, depth = (
            np.sort(np.array([time for time, _ in images], dtype=np.int64)) / 1e9
            for images in (self.colour, self.depth)
        )
        return colour, depth

    def pair_count(self) -> int:
        """Return how many colour images have a depth image."""
        return int((nearest_within(*self.times(), MAX_TIME_DIFFERENCE) >= 0).sum())


def open_sequence(entry: Entry, place: Path, options: ReadOptions) -> Dataset:
    """Open a bag; goes over its messages once, to learn their times.

    Raises DatasetError where topics or cameras are missing; the message says what to write into
    the file BAG.yaml beside the bag.
    """
    settings = read_settings(place)
    bag = BagFile(place)
    topics = choose_topics(bag, settings)
    found = _read_contents(bag, topics, options)
    sensor = _sensor(place, topics, found, settings)
    frames = _frames(topics, found, settings)
    return RecordedSequence(entry.name, frames, sensor, options)


def _read_contents(bag: BagFile, topics: Topics, options: ReadOptions) -> _Contents:
    found = _Contents()
    images = {topics.colour: found.colour, topics.depth: found.depth}
    others = [*bag.of_type(*TRANSFORMS), *bag.of_type(CAMERA_INFO)]
    wanted = options.max_frames and options.max_frames * options.stride
    next_check, last = wanted or 0, _NEVER
    for at, message in bag.scan([*images, *others]):
        found.first.setdefault(at.topic, message)
        if at.topic in images:
            images[at.topic].append((_time(message, at), at))
        elif hasattr(message, "transforms"):
            found.transforms.add(message)
        if at.recorded > last:
            break
        if wanted and last == _NEVER and len(found.colour) > next_check:
            lacking = wanted - found.pair_count()
            last = at.recorded + _MARGIN if lacking < 0 else _NEVER
            next_check = len(found.colour) + max(lacking, _MANY)
    return found


def _frames(topics: Topics, found: _Contents, settings: BagSettings) -> list[_BagFrame]:
    colour, depth = (sorted(images, key=_by_time) for images in (found.colour, found.depth))
    times = found.times()
    pose_at = _ground_truth(found.transforms, frame_of(found.first[topics.colour]), settings)
    return [
        _BagFrame(float(times[0][i]), colour[i][1], depth[j][1], pose_at(colour[i][0]))
        for i, j in pairs_in_time(*times)
    ]


def _by_time(image: tuple[int, MessageAt]) -> int:
    return image[0]


def _ground_truth(
    transforms: TransformTree, camera_frame: str, settings: BagSettings
) -> Callable[[int], NDArray[np.float64] | None]:
    """Return what gives the camera's pose at a time (ns), if anything in the bag does."""
    chain = transforms.chain(camera_frame)
    world = settings.world_frame or next((f for f in chain if f.lower() in _WORLDS), None)
    if world is None:
        return lambda time: None
    if world.lstrip("/") not in chain:
        raise DatasetError(f"tf does not lead from {camera_frame} to {world}: {' -> '.join(chain)}")
    return lambda time: transforms.pose(camera_frame, world, time)


def _sensor(place: Path, topics: Topics, found: _Contents, settings: BagSettings) -> Sensor:
    colour = _calibration(settings.camera, topics.colour_info, topics.colour, found)
    if colour is None:
        raise DatasetError(
            f"{place} has no camera_info beside {topics.colour}: give its topic (colour_info) or "
            f"the camera itself (camera) in {settings_path(place)}"
        )
    depth = _calibration(settings.depth_camera, topics.depth_info, topics.depth, found)
    T_color_depth = _depth_motion(place, topics, found, settings)
    if T_color_depth is not None and depth is None:
        raise DatasetError(
            f"{place} has no camera_info beside {topics.depth}: give its topic (depth_info) or the "
            f"camera itself (depth_camera) in {settings_path(place)}"
        )
    is_given = settings.depth_camera is not None
    if T_color_depth is None and depth and not is_given and _same_size(colour, depth):
        # Aligned pixel by pixel, whatever drivers write into the camera_info of such depth.
        depth = None
    scale = settings.depth_scale or depth_scale_of(found.first[topics.depth])
    return Sensor(colour, scale, depth, T_color_depth)


def _depth_motion(
    place: Path, topics: Topics, found: _Contents, settings: BagSettings
) -> NDArray[np.float64] | None:
    """Return depth camera points to colour camera points (4, 4); None where depth is aligned."""
    if settings.T_color_depth is not None:
        return settings.T_color_depth.matrix()
    colour_frame, depth_frame = (
        frame_of(found.first[topic]) for topic in (topics.colour, topics.depth)
    )
    if is_aligned(topics.depth) or colour_frame == depth_frame:
        return None
    T_color_depth = found.transforms.between(colour_frame, depth_frame)
    if T_color_depth is None:
        raise DatasetError(
            f"{place}: nothing says how the depth camera ({depth_frame}) is mounted to the colour "
            f"camera ({colour_frame}): record depth aligned to colour, or /tf_static, or write "
            f"T_color_depth into {settings_path(place)}"
        )
    return T_color_depth


def _calibration(
    given: CameraEntry | None, topic: str | None, image_topic: str, found: _Contents
) -> Calibration | None:
    if given is not None:
        return given.calibration()
    if topic is None or topic not in found.first:
        return None
    return calibration_of(found.first[topic], topic, image_topic)


def _same_size(a: Calibration, b: Calibration) -> bool:
    return (a.camera.width, a.camera.height) == (b.camera.width, b.camera.height)


def _time(message: Any, at: MessageAt) -> int:
    """Return when the image was taken (ns), or recorded where the sensor does not say."""
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec) or at.recorded


def _message(at: MessageAt) -> Any:
    try:
        return at.read()
    except DatasetError as error:
        raise BadFrameError(str(error)) from error
