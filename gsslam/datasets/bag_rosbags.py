"""Bags of ROS 1 (.bag) and ROS 2 (folders, .db3), read by the library rosbags."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from gsslam.datasets.bag_file import RawMessage


class RosbagsStorage:
    """A Storage on rosbags."""

    def __init__(self, place: Path) -> None:
        # Bags of ROS 2 before Iron do not say what their messages look like.
        self._reader = AnyReader([place], default_typestore=get_typestore(Stores.ROS2_HUMBLE))
        self._reader.open()
        self._types = {c.topic: c.msgtype for c in self._reader.connections}

    def topics(self) -> dict[str, str]:
        """Return the type of every topic."""
        return self._types

    def messages(
        self, topics: Collection[str], start: int | None = None, stop: int | None = None
    ) -> Iterator[RawMessage]:
        """Yield messages in the order of recording."""
        chosen = [c for c in self._reader.connections if c.topic in topics]
        for connection, recorded, data in self._reader.messages(chosen, start, stop):
            yield RawMessage(connection.topic, recorded, data)

    def decode(self, topic: str, data: bytes) -> Any:
        """Return the message as an object."""
        return self._reader.deserialize(data, self._types[topic])

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
