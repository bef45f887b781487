"""Choice of topics in a recording, and the cameras that their camera_info describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from gsslam.datasets import bag_images
from gsslam.datasets.bag_file import CAMERA_INFO, COMPRESSED_IMAGE, IMAGE, BagFile
from gsslam.datasets.catalogue import CameraEntry, MotionEntry, Positive, read_yaml
from gsslam.datasets.matrices import camera_of
from gsslam.datasets.rectify import Calibration
from gsslam.errors import DatasetError

# What image transports add to the name of a topic.
_TRANSPORTS = ("/compressed", "/compressedDepth")
_BROWN_MODELS = ("plumb_bob", "rational_polynomial", "")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"), kw_only=True)
class BagSettings:
    """What one may say of a bag in the file BAG.yaml beside it; None: gsslam finds out."""

    # Topics.
    colour: str | None = None
    depth: str | None = None
    colour_info: str | None = None
    depth_info: str | None = None
    # Value of a depth image at one metre.
    depth_scale: Positive | None = None
    # Instead of camera_info.
    camera: CameraEntry | None = None
    depth_camera: CameraEntry | None = None
    # Depth camera points to colour camera points, instead of /tf_static.
    T_color_depth: MotionEntry | None = None
    # The frame of tf in which the camera's poses are ground truth.
    world_frame: str | None = None


@plain_dataclass(frozen=True)
class Topics:
    """The topics of one camera."""

    colour: str
    depth: str
    colour_info: str | None
    depth_info: str | None


def settings_path(place: Path) -> Path:
    """Return where the settings of the bag ``place`` may lie."""
    return place.resolve().with_name(place.resolve().name + ".yaml")


def read_settings(place: Path) -> BagSettings:
    """Return what the file BAG.yaml says; nothing where there is none."""
    path = settings_path(place)
    return read_yaml(path, BagSettings) if path.exists() else BagSettings()


def choose_topics(bag: BagFile, settings: BagSettings) -> Topics:
    """Return the colour and the depth topic; raises DatasetError where they are not clear."""
    first = {topic: _first(bag, topic) for topic in bag.of_type(IMAGE, COMPRESSED_IMAGE)}
    first = {topic: message for topic, message in first.items() if message is not None}
    for topic in filter(None, (settings.colour, settings.depth)):
        if topic not in first:
            raise DatasetError(f"{bag.place} has no image topic {topic}; {_list(first)}")
    depths = [topic for topic, message in first.items() if bag_images.is_depth(message)]
    colours = [topic for topic, message in first.items() if bag_images.is_colour(message)]

    def colour_rank(topic: str) -> tuple[bool, ...]:
        named = any(word in topic for word in ("color", "colour", "rgb"))
        return (bag_images.is_grey(first[topic]), "infra" in topic, not named, *_rank(topic))

    colour = settings.colour or _best(bag, "colour", colours, colour_rank)

    def depth_rank(topic: str) -> tuple[bool, ...]:
        is_apart = frame_of(first[topic]) != frame_of(first[colour])
        return (is_apart and not is_aligned(topic), *_rank(topic))

    depth = settings.depth or _best(bag, "depth", depths, depth_rank)
    return Topics(
        colour,
        depth,
        settings.colour_info or _info_topic(bag, colour, may_be_elsewhere=True),
        settings.depth_info or _info_topic(bag, depth, may_be_elsewhere=False),
    )


def frame_of(message: Any) -> str:
    """Return the name of the frame that a message with a header belongs to."""
    return str(message.header.frame_id).lstrip("/")


def is_aligned(depth_topic: str) -> bool:
    """Tell whether the name of a topic says that its depth lies on colour."""
    return any(word in depth_topic for word in ("aligned", "registered"))


def calibration_of(info: Any, topic: str, image_topic: str) -> Calibration:
    """Return the camera that a CameraInfo describes; raises DatasetError where it cannot be."""
    # ROS 1 writes them in capitals.
    k, d, p = (getattr(info, name, getattr(info, name.upper(), ())) for name in "kdp")
    K, P = np.asarray(k).reshape(3, 3), np.asarray(p).reshape(3, 4)
    D = np.zeros(max(8, len(d)))
    D[: len(d)] = d
    if _is_rectified(image_topic) and P[0, 0] > 0:
        K, D = P[:, :3], np.zeros(8)
    camera = camera_of(K, int(info.width), int(info.height), f"camera info {topic}")
    if not D.any():
        return Calibration(camera)
    is_brown = info.distortion_model in _BROWN_MODELS and not D[8:].any()
    if not is_brown or not np.isfinite(D).all():
        raise DatasetError(
            f"camera info {topic} has the lens model {info.distortion_model!r}, which gsslam "
            "cannot undo; record images rectified by image_proc, such as .../image_rect_color"
        )
    return Calibration(camera, tuple(D[: 8 if D[5:].any() else 5].tolist()))


def _first(bag: BagFile, topic: str) -> Any:
    """Return the first message; None where there is none."""
    return next((message for _, message in bag.scan([topic])), None)


def _rank(topic: str) -> tuple[bool, bool]:
    """Put undistorted images first, and then those that were not compressed."""
    return not _is_rectified(topic), topic.endswith(_TRANSPORTS)


def _is_rectified(topic: str) -> bool:
    """Tell whether the name of a topic says that its images are undistorted."""
    return "rect" in _plain(topic).rpartition("/")[2]


def _plain(topic: str) -> str:
    """Return the name of a topic without its transport."""
    for transport in _TRANSPORTS:
        topic = topic.removesuffix(transport)
    return topic


def _best(
    bag: BagFile, kind: str, topics: list[str], rank: Callable[[str], tuple[bool, ...]]
) -> str:
    """Return the best topic; raises DatasetError where there is none, or several of equal right."""
    if not topics:
        raise DatasetError(
            f"{bag.place} has no {kind} topic: none of its topics ({_list(bag.topics)}) has images "
            f"that can be {kind}; record the camera's {kind} stream"
        )
    ordered = sorted(topics, key=lambda topic: (rank(topic), topic))
    best = [topic for topic in ordered if rank(topic) == rank(ordered[0])]
    cameras = {_plain(topic).rpartition("/")[0] for topic in best}
    if len(cameras) > 1:
        raise DatasetError(
            f"{bag.place} has several {kind} topics ({', '.join(best)}): say which in "
            f"{settings_path(bag.place)}, such as `{kind}: {best[0]}`"
        )
    return best[0]


def _info_topic(bag: BagFile, image_topic: str, *, may_be_elsewhere: bool) -> str | None:
    """Return the topic of the camera that took the images: beside them, or the only one at all."""
    infos = bag.of_type(CAMERA_INFO)
    beside = _plain(image_topic).rpartition("/")[0] + "/camera_info"
    if beside in infos:
        return beside
    return infos[0] if may_be_elsewhere and len(infos) == 1 else None


def _list(topics: Any) -> str:
    names = sorted(topics)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
