"""ROS bags and MCAP files as one thing: topics, and messages by topic and time."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gsslam.errors import DatasetError, GsslamError
from gsslam.extras import require

# ROS 1 calls them sensor_msgs/Image; both libraries are asked for names of ROS 2.
IMAGE, COMPRESSED_IMAGE = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"
TRANSFORMS = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")


class RawMessage(NamedTuple):
    """A message as it lies in the file."""

    topic: str
    # Nanoseconds at which it was recorded.
    recorded: int
    data: bytes


class Storage(Protocol):
    """One way to store messages. Anything it raises means that the file is damaged."""

    def topics(self) -> dict[str, str]:
        """Return the type of every topic that can be decoded, in the names of ROS 2."""
        ...

    def messages(
        self, topics: Collection[str], start: int | None = None, stop: int | None = None
    ) -> Iterator[RawMessage]:
        """Yield messages in the order of recording, ``start`` (ns) included, ``stop`` not."""
        ...

    def decode(self, topic: str, data: bytes) -> Any:
        """Return the message as an object with its fields."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class BagFile:
    """An open recording, which several threads may read."""

    def __init__(self, place: Path) -> None:
        """Open ``place``; raises DatasetError where it is damaged, ConfigError without rosbags."""
        self.place = place
        self._lock = threading.Lock()
        with self._damage_explained():
            self._storage = _open_storage(place)
            # Whoever drops the last frame of it need not know that files were open.
            weakref.finalize(self, self._storage.close)
            # Type of every topic.
            self.topics = self._storage.topics()

    def of_type(self, *types: str) -> list[str]:
        """Return the topics of these types, sorted."""
        return sorted(topic for topic, kind in self.topics.items() if kind in types)

    def scan(self, topics: Collection[str]) -> Iterator[tuple[MessageAt, Any]]:
        """Yield where every message of ``topics`` lies, and the message, as they were recorded."""
        # Of messages that one topic recorded at the same time, which one it is.
        last: dict[str, tuple[int, int]] = {}
        with self._lock, self._damage_explained():
            for topic, recorded, data in self._storage.messages(topics):
                time, ordinal = last.get(topic, (-1, 0))
                ordinal = ordinal + 1 if time == recorded else 0
                last[topic] = recorded, ordinal
                at = MessageAt(self, topic, recorded, ordinal)
                yield at, self._storage.decode(topic, data)

    def read(self, at: MessageAt) -> Any:
        """Return one message; raises DatasetError where the file is damaged there."""
        with self._lock, self._damage_explained():
            stop = at.recorded + 1
            found = self._storage.messages([at.topic], at.recorded, stop)
            for ordinal, message in enumerate(found):
                if ordinal == at.ordinal:
                    return self._storage.decode(at.topic, message.data)
        raise DatasetError(f"{self.place} changed while it was read")

    @contextlib.contextmanager
    def _damage_explained(self) -> Iterator[None]:
        try:
            yield
        except GsslamError:
            raise
        except OSError as error:
            raise DatasetError(f"cannot read {self.place}: {error.strerror or error}") from error
        except Exception as error:  # of many kinds: the libraries trust what a file says
            raise DatasetError(
                f"{self.place} is truncated, damaged or no bag ({_reason(error)}); `rosbag reindex`"
                ", `ros2 bag reindex` or `mcap recover` may save what is there"
            ) from error


@dataclass(frozen=True)
class MessageAt:
    """Where a message lies."""

    bag: BagFile = field(repr=False)
    topic: str
    # Nanoseconds at which it was recorded; and which one of those that were recorded then.
    recorded: int
    ordinal: int

    def read(self) -> Any:
        """Return the message; raises DatasetError where the file is damaged there."""
        return self.bag.read(self)

    def __str__(self) -> str:
        return f"{self.topic} at {self.recorded / 1e9:.6f} s of {self.bag.place}"


def _open_storage(place: Path) -> Storage:
    purpose = "reading ROS bags"
    require("rosbags.highlevel", "bags", purpose)
    if place.suffix.lower() == ".mcap":
        require("mcap.reader", "bags", "reading MCAP files")
        from gsslam.datasets.bag_mcap import McapStorage

        return McapStorage(place)
    from gsslam.datasets.bag_rosbags import RosbagsStorage

    return RosbagsStorage(place)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
