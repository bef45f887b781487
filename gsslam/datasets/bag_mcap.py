"""Single MCAP files with messages of ROS 1 or ROS 2, read by the library mcap."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from mcap.reader import make_reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.msg import normalize_msgtype

from gsslam.datasets.bag_file import RawMessage
from gsslam.errors import DatasetError

# How ROS 1 and ROS 2 encode messages, and how they describe them.
_ENCODINGS = {("ros1", "ros1msg"), ("cdr", "ros2msg")}


class McapStorage:
    """A Storage on mcap; messages are decoded by rosbags, from the descriptions in the file."""

    def __init__(self, place: Path) -> None:
        self._file = place.open("rb")
        try:
            self._read_summary(place)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_summary(self, place: Path) -> None:
        self._reader = make_reader(self._file)
        summary = self._reader.get_summary()
        if summary is None:
            raise DatasetError(
                f"{place} was not closed, so that it has no index: `mcap recover` it"
            )
        # Encoding and type of every topic.
        self._topics: dict[str, tuple[str, str]] = {}
        self._types = get_typestore(Stores.EMPTY)
        unknown = set()
        for channel in summary.channels.values():
            schema = summary.schemas.get(channel.schema_id)
            if schema and (channel.message_encoding, schema.encoding) in _ENCODINGS:
                kind = normalize_msgtype(schema.name)
                self._topics[channel.topic] = channel.message_encoding, kind
                text = schema.data.decode("utf-8")
                new = get_types_from_msg(text, schema.name)
                known = self._types.fielddefs
                self._types.register({k: v for k, v in new.items() if k not in known})
            else:
                unknown.add(channel.message_encoding)
        if not self._topics:
            raise DatasetError(
                f"{place} has no messages of ROS (its encodings: {', '.join(sorted(unknown))})"
            )

    def topics(self) -> dict[str, str]:
        """Return the type of every topic."""
        return {topic: kind for topic, (_, kind) in self._topics.items()}

    def messages(
        self, topics: Collection[str], start: int | None = None, stop: int | None = None
    ) -> Iterator[RawMessage]:
        """Yield messages in the order of recording."""
        for _, channel, message in self._reader.iter_messages(list(topics), start, stop):
            yield RawMessage(channel.topic, message.log_time, message.data)

    def decode(self, topic: str, data: bytes) -> Any:
        """Return the message as an object."""
        encoding, kind = self._topics[topic]
        if encoding == "ros1":
            return self._types.deserialize_ros1(data, kind)
        return self._types.deserialize_cdr(data, kind)
