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
    read_settings,
    settings_path,
)
from gsslam.datasets.bag_transforms import TransformTree
from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import CameraEntry, Entry
from gsslam.datasets.rectify import Calibration, RawDepth
from gsslam.datasets.sequence import RecordedSequence, Sensor, pairs_in_time
from gsslam.errors import BadFrameError, DatasetError

# Poses in a frame of this name are those of a motion capture or of a map, not dead reckoning.
_WORLDS = ("world", "map", "mocap", "vicon", "optitrack", "qualisys", "ground_truth")
# Nanoseconds of other messages that are still read behind the last frame wanted.
_MARGIN = 1_000_000_000


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
    last: int | None = None
    for at, message in bag.scan([*images, *others]):
        found.first.setdefault(at.topic, message)
        if at.topic in images:
            images[at.topic].append((_time(message, at), at))
            if wanted and last is None and len(found.colour) > wanted:
                last = at.recorded + _MARGIN
        elif hasattr(message, "transforms"):
            found.transforms.add(message)
        if last is not None and at.recorded > last:
            break
    return found


def _frames(topics: Topics, found: _Contents, settings: BagSettings) -> list[_BagFrame]:
    colour, depth = (sorted(images, key=_by_time) for images in (found.colour, found.depth))
    times = [np.array([time for time, _ in images]) / 1e9 for images in (colour, depth)]
    pose_at = _ground_truth(found.transforms, _frame_id(found.first[topics.colour]), settings)
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
    colour_message, depth_message = found.first[topics.colour], found.first[topics.depth]
    colour = _calibration(settings.camera, topics.colour_info, topics.colour, found)
    if colour is None:
        raise DatasetError(
            f"{place} has no camera_info beside {topics.colour}: give its topic (colour_info) or "
            f"the camera itself (camera) in {settings_path(place)}"
        )
    depth = _calibration(settings.depth_camera, topics.depth_info, topics.depth, found)
    frames = _frame_id(colour_message), _frame_id(depth_message)
    motion = settings.T_color_depth
    T_color_depth = motion.matrix() if motion else found.transforms.between(*frames)
    aligned = any(word in topics.depth for word in ("aligned", "registered"))
    if T_color_depth is None and not aligned and frames[0] != frames[1]:
        raise DatasetError(
            f"{place}: nothing says how the depth camera ({frames[1]}) is mounted to the colour "
            f"camera ({frames[0]}): record depth aligned to colour, or /tf_static, or write "
            f"T_color_depth into {settings_path(place)}"
        )
    if depth is None and not aligned and T_color_depth is not None and frames[0] != frames[1]:
        raise DatasetError(
            f"{place} has no camera_info beside {topics.depth}: give its topic (depth_info) or the "
            f"camera itself (depth_camera) in {settings_path(place)}"
        )
    scale = settings.depth_scale or depth_scale_of(depth_message)
    if aligned and motion is None:
        T_color_depth = None
    if T_color_depth is None and depth is not None and _same_size(colour, depth):
        depth = None
    return Sensor(colour, scale, depth, T_color_depth)


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


def _frame_id(message: Any) -> str:
    return str(message.header.frame_id).lstrip("/")


def _time(message: Any, at: MessageAt) -> int:
    """Return when the image was taken (ns), or recorded where the sensor does not say."""
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec) or at.recorded


def _message(at: MessageAt) -> Any:
    try:
        return at.read()
    except DatasetError as error:
        raise BadFrameError(str(error)) from error
