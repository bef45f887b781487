"""Recordings of the synthetic room as ROS 1 bags, ROS 2 bags and MCAP files."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import mcap.writer
import numpy as np
from numpy.typing import NDArray
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from gsslam.camera import Camera
from gsslam.datasets import open_dataset
from gsslam.datasets.base import Dataset
from gsslam.geometry import quaternion_from_matrix
from tests.datasets.recordings import SMALL, Shot

ROS1, ROS2 = Stores.ROS1_NOETIC, Stores.ROS2_HUMBLE
KINDS = (
    *("ros1.bag", "ros1_lz4.bag", "ros1_bz2.bag", "ros1.mcap"),
    *("ros2", "ros2_zstd", "ros2_mcap", "single.mcap", "single.db3"),
)
COLOUR, DEPTH = "/camera/color/image_raw", "/camera/aligned_depth_to_color/image_raw"
OPTICAL = "camera_color_optical_frame"
IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"

# Topic, type, time of recording (ns), fields.
Entry = tuple[str, str, int, dict[str, Any]]


@dataclass
class Bag:
    """Messages that any kind of bag can be written from."""

    entries: list[Entry] = field(default_factory=list)

    def add(self, topic: str, kind: str, time: float, **fields: Any) -> None:
        self.entries.append((topic, kind, round(time * 1e9), fields))

    def write(self, path: Path) -> Path:
        """Write the kind of bag that the name ``path`` asks for."""
        is_ros1 = path.name.startswith("ros1")
        types = get_typestore(ROS1 if is_ros1 else ROS2)
        if is_ros1:
            text = "geometry_msgs/TransformStamped[] transforms"
            types.register(get_types_from_msg(text, "tf2_msgs/msg/TFMessage"))
        entries = sorted(self.entries, key=lambda entry: entry[2])
        messages = [(t, k, time, _message(types, k, fields)) for t, k, time, fields in entries]
        serialize = types.serialize_ros1 if is_ros1 else types.serialize_cdr
        rows = [(t, k, time, bytes(serialize(m, k))) for t, k, time, m in messages]
        if path.suffix == ".mcap":
            _write_mcap(path, rows, types, is_ros1)
        elif path.suffix == ".bag":
            writer = Writer1(path)
            if "_" in path.stem:
                kind = path.stem.rpartition("_")[2].upper()
                writer.set_compression(Writer1.CompressionFormat[kind])
            with writer:
                _write_rows(writer, rows, types)
        elif path.suffix == ".db3":
            folder = path.with_suffix("")
            with Writer2(folder, version=9) as writer:
                _write_rows(writer, rows, types)
            (folder / f"{folder.name}.db3").rename(path)
        else:
            plugin = StoragePlugin.MCAP if path.name.endswith("mcap") else StoragePlugin.SQLITE3
            writer = Writer2(path, version=9, storage_plugin=plugin)
            if path.name.endswith("zstd"):
                writer.set_compression(CompressionMode.MESSAGE, CompressionFormat.ZSTD)
            with writer:
                _write_rows(writer, rows, types)
        return path


def _write_rows(writer: Any, rows: list[tuple[str, str, int, bytes]], types: Any) -> None:
    connections = {}
    for topic, kind, time, data in rows:
        if topic not in connections:
            connections[topic] = writer.add_connection(topic, kind, typestore=types)
        writer.write(connections[topic], time, data)


def _write_mcap(
    path: Path, rows: list[tuple[str, str, int, bytes]], types: Any, is_ros1: bool
) -> None:
    with path.open("wb") as file:
        writer = mcap.writer.Writer(file, chunk_size=20_000)
        writer.start()
        channels: dict[str, int] = {}
        for topic, kind, time, data in rows:
            if topic not in channels:
                text, _ = types.generate_msgdef(kind, ros_version=1 if is_ros1 else 2)
                name = kind.replace("/msg/", "/") if is_ros1 else kind
                encoding = ("ros1msg", "ros1") if is_ros1 else ("ros2msg", "cdr")
                schema = writer.register_schema(name, encoding[0], text.encode())
                channels[topic] = writer.register_channel(topic, encoding[1], schema)
            writer.add_message(channels[topic], time, data, time)
        writer.finish()


def _message(types: Any, kind: str, fields: dict[str, Any]) -> Any:
    """Build a message; ROS 1 has a sequence number in headers, and capitals in CameraInfo."""
    built = {}
    for name, value in fields.items():
        if isinstance(value, tuple):
            built[name] = _message(types, *value)
        elif isinstance(value, list):
            built[name] = [_message(types, *item) for item in value]
        else:
            built[name] = value
    wanted = types.types[kind].__dataclass_fields__
    if "seq" in wanted:
        built["seq"] = 0
    built = {name if name in wanted else name.upper(): value for name, value in built.items()}
    return types.types[kind](**built)


def header(time: float, frame: str) -> tuple[str, dict[str, Any]]:
    nanoseconds = round(time * 1e9)
    stamp = {"sec": nanoseconds // 10**9, "nanosec": nanoseconds % 10**9}
    return "std_msgs/msg/Header", {
        "stamp": ("builtin_interfaces/msg/Time", stamp),
        "frame_id": frame,
    }


def image(pixels: NDArray[Any], encoding: str, time: float, frame: str) -> dict[str, Any]:
    """The fields of an Image; four bytes fill up every row."""
    rows = np.ascontiguousarray(pixels).reshape(len(pixels), -1).view(np.uint8)
    padded = np.pad(rows, ((0, 0), (0, 4)), constant_values=255)
    return {
        "header": header(time, frame),
        "height": pixels.shape[0],
        "width": pixels.shape[1],
        "encoding": encoding,
        "is_bigendian": int(pixels.dtype.byteorder == ">"),
        "step": padded.shape[1],
        "data": padded.ravel(),
    }


def compressed(data: bytes, kind: str, time: float, frame: str) -> dict[str, Any]:
    """The fields of a CompressedImage."""
    content = np.frombuffer(data, np.uint8)
    return {"header": header(time, frame), "format": kind, "data": content}


def camera_info(
    camera: Camera, time: float, frame: str, D: tuple[float, ...] = (), model: str = "plumb_bob"
) -> dict[str, Any]:
    K = camera.matrix()
    K[:2, 2] -= 0.5
    P = np.hstack([K, np.zeros((3, 1))])
    roi = {"x_offset": 0, "y_offset": 0, "height": 0, "width": 0, "do_rectify": False}
    return {
        "header": header(time, frame),
        "height": camera.height,
        "width": camera.width,
        "distortion_model": model,
        "d": np.array(D, dtype=np.float64),
        "k": K.ravel(),
        "r": np.eye(3).ravel(),
        "p": P.ravel(),
        "binning_x": 0,
        "binning_y": 0,
        "roi": ("sensor_msgs/msg/RegionOfInterest", roi),
    }


def transform(parent: str, child: str, T: NDArray[np.float64], time: float) -> Any:
    """A TransformStamped: ``child`` points to ``parent`` points."""
    x, y, z, w = quaternion_from_matrix(T[:3, :3])
    t = dict(zip("xyz", (float(v) for v in T[:3, 3]), strict=True))
    q = {"x": float(x), "y": float(y), "z": float(z), "w": float(w)}
    motion = {
        "translation": ("geometry_msgs/msg/Vector3", t),
        "rotation": ("geometry_msgs/msg/Quaternion", q),
    }
    return "geometry_msgs/msg/TransformStamped", {
        "header": header(time, parent),
        "child_frame_id": child,
        "transform": ("geometry_msgs/msg/Transform", motion),
    }


def room_bag(shots: list[Shot], camera: Camera = SMALL, *, with_truth: bool = True) -> Bag:
    """A plain recording: raw colour, aligned depth in millimetres, recorded 50 ms late."""
    bag = Bag()
    for shot in shots:
        time, late = shot.timestamp, shot.timestamp + 0.05
        colour = image(shot.rgb, "rgb8", time, OPTICAL)
        bag.add(COLOUR, "sensor_msgs/msg/Image", late, **colour)
        depth = image(shot.depth_image(1000), "16UC1", time + 0.004, OPTICAL)
        bag.add(DEPTH, "sensor_msgs/msg/Image", late, **depth)
        for topic in (COLOUR, DEPTH):
            info = camera_info(camera, time, OPTICAL)
            name = topic.replace("image_raw", "camera_info")
            bag.add(name, "sensor_msgs/msg/CameraInfo", late, **info)
        if with_truth:
            add_truth(bag, shot)
    return bag


def add_truth(bag: Bag, shot: Shot) -> None:
    """Say the pose through a body frame, 10 ms before and after it."""
    T_body_camera = np.eye(4)
    T_body_camera[:3, 3] = 0.1, 0.2, 0.3
    static = [transform("body", OPTICAL, T_body_camera, 0)]
    bag.add("/tf_static", "tf2_msgs/msg/TFMessage", shot.timestamp, transforms=static)
    T_world_body = shot.T_world_camera @ np.linalg.inv(T_body_camera)
    for offset in (-0.01, 0.01):
        time = shot.timestamp + offset
        moving = [transform("world", "body", T_world_body, time)]
        bag.add("/tf", "tf2_msgs/msg/TFMessage", time, transforms=moving)


def jpeg(rgb: NDArray[np.uint8], kind: str = ".jpg") -> bytes:
    bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    return cv2.imencode(kind, bgr, [cv2.IMWRITE_JPEG_QUALITY, 98])[1].tobytes()


def compressed_depth(depth: NDArray[np.uint16], a: float = 0, b: float = 0) -> bytes:
    """As compressed_depth_image_transport writes it."""
    head = np.array([0], "<i4").tobytes() + np.array([a, b], "<f4").tobytes()
    return head + cv2.imencode(".png", depth)[1].tobytes()


def rvl(depth: NDArray[np.uint16]) -> bytes:
    """Wilson's encoder, as it is published: one number at a time."""
    nibbles: list[int] = []

    def put(value: int) -> None:
        while True:
            low, value = value & 7, value >> 3
            nibbles.append(low | (8 if value else 0))
            if not value:
                return

    flat, at, previous = depth.ravel().astype(int).tolist(), 0, 0
    while at < len(flat):
        zeros = at
        while at < len(flat) and flat[at] == 0:
            at += 1
        put(at - zeros)
        end = at
        while end < len(flat) and flat[end] != 0:
            end += 1
        put(end - at)
        for value in flat[at:end]:
            delta, previous = value - previous, value
            put((delta << 1) ^ (delta >> 31))
        at = end
    nibbles += [0] * (-len(nibbles) % 8)
    words = [
        int("".join(f"{n:x}" for n in nibbles[i : i + 8]), 16) for i in range(0, len(nibbles), 8)
    ]
    size = np.array([depth.shape[1], depth.shape[0]], "<i4").tobytes()
    return bytes(12) + size + np.array(words, "<u4").tobytes()


def without(bag: Bag, *words: str) -> Bag:
    """Leave out the topics whose names have one of ``words``."""
    return Bag([entry for entry in bag.entries if not any(word in entry[0] for word in words)])


def opened(bag: Bag, tmp_path: Path, **options: Any) -> Dataset:
    """Write a bag and open it as a dataset."""
    return open_dataset(str(bag.write(tmp_path / "ros2")), **options)


def check_depth(dataset: Dataset, shots: list[Shot], step: float = 1e-3) -> None:
    """Assert that depth is that of the shots, to half a ``step`` of its unit, metres."""
    for index, shot in enumerate(shots):
        np.testing.assert_allclose(dataset[index].depth, shot.depth, atol=0.51 * step)
