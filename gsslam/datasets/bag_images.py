"""Images in messages of ROS: plain ones, compressed ones, and compressed depth."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.images import decode_colour, decode_depth, measured
from gsslam.datasets.rectify import RawDepth
from gsslam.errors import BadFrameError

# Data type, channels and OpenCV's conversion to RGB of the encodings of sensor_msgs/Image.
_COLOUR: dict[str, tuple[int, int | None]] = {
    "rgb8": (3, None),
    "bgr8": (3, cv2.COLOR_BGR2RGB),
    "8UC3": (3, cv2.COLOR_BGR2RGB),
    "rgba8": (4, cv2.COLOR_RGBA2RGB),
    "bgra8": (4, cv2.COLOR_BGRA2RGB),
    "8UC4": (4, cv2.COLOR_BGRA2RGB),
    "mono8": (1, cv2.COLOR_GRAY2RGB),
    "8UC1": (1, cv2.COLOR_GRAY2RGB),
    # OpenCV names Bayer patterns by their second row.
    "bayer_rggb8": (1, cv2.COLOR_BayerBG2RGB),
    "bayer_bggr8": (1, cv2.COLOR_BayerRG2RGB),
    "bayer_gbrg8": (1, cv2.COLOR_BayerGR2RGB),
    "bayer_grbg8": (1, cv2.COLOR_BayerGB2RGB),
    "yuv422": (2, cv2.COLOR_YUV2RGB_UYVY),
    "uyvy": (2, cv2.COLOR_YUV2RGB_UYVY),
    "yuv422_yuy2": (2, cv2.COLOR_YUV2RGB_YUY2),
    "yuyv": (2, cv2.COLOR_YUV2RGB_YUY2),
}
_DEPTH = {"16UC1": np.uint16, "mono16": np.uint16, "32FC1": np.float32}
_GREY = ("mono8", "8UC1")

# compressed_depth_image_transport puts a format (int32) and two parameters (float32) first.
_DEPTH_HEADER = np.dtype([("format", "<i4"), ("a", "<f4"), ("b", "<f4")])
_PNG = b"\x89PNG"


def encoding_of(message: Any) -> str:
    """Return the encoding of an Image; of a CompressedImage, that of what was compressed."""
    if hasattr(message, "encoding"):
        return str(message.encoding)
    return str(message.format).partition(";")[0].strip()


def is_depth(message: Any) -> bool:
    """Tell whether the image is depth."""
    return encoding_of(message) in _DEPTH or "compressedDepth" in getattr(message, "format", "")


def is_colour(message: Any) -> bool:
    """Tell whether the image is one that can be used as colour."""
    if hasattr(message, "encoding"):
        return message.encoding in _COLOUR
    return not is_depth(message)


def is_grey(message: Any) -> bool:
    """Tell whether an image for colour has no colours."""
    return encoding_of(message) in _GREY


def depth_scale_of(message: Any) -> float:
    """Return the value at one metre: by ROS's REP 118, integers are millimetres, floats metres."""
    return 1.0 if encoding_of(message) == "32FC1" else 1000.0


def colour_of(message: Any, name: str) -> NDArray[np.uint8]:
    """Return the colour image (H, W, 3), RGB; raises BadFrameError, which calls it ``name``."""
    if not hasattr(message, "encoding"):
        return decode_colour(bytes(message.data), name)
    if message.encoding not in _COLOUR:
        raise BadFrameError(f"image {name} has the encoding {message.encoding}, which is unknown")
    channels, conversion = _COLOUR[message.encoding]
    image = _pixels(message, np.dtype(np.uint8), channels, name)
    if conversion is None:
        return image
    return np.asarray(cv2.cvtColor(image, conversion), dtype=np.uint8)


def depth_of(message: Any, name: str) -> RawDepth:
    """Return the depth image (H, W), 0 where nothing was measured; raises BadFrameError."""
    if not hasattr(message, "encoding"):
        return _compressed_depth(message, name)
    if message.encoding not in _DEPTH:
        raise BadFrameError(f"image {name} has the encoding {message.encoding}, which is no depth")
    kind = np.dtype(_DEPTH[message.encoding])
    image = _pixels(message, kind.newbyteorder(">" if message.is_bigendian else "<"), 1, name)
    if kind == np.uint16:
        return measured(image.astype(np.uint16), name)
    return measured(image.astype(np.float32), name)


def _pixels(message: Any, kind: np.dtype[Any], channels: int, name: str) -> NDArray[Any]:
    """Return the rows (H, W) or (H, W, C) without what fills them up."""
    height, width, step = int(message.height), int(message.width), int(message.step)
    data = np.asarray(message.data, dtype=np.uint8)
    row = width * channels * kind.itemsize
    if height < 1 or width < 1 or step < row or data.size < height * step:
        raise BadFrameError(
            f"image {name} is truncated: {data.size} bytes for {width}x{height} pixels of "
            f"{message.encoding}"
        )
    rows = np.ascontiguousarray(data[: height * step].reshape(height, step)[:, :row])
    image = rows.view(kind)
    return image if channels == 1 else image.reshape(height, width, channels)


def _compressed_depth(message: Any, name: str) -> RawDepth:
    data = bytes(message.data)
    # Without the transport's header it is an ordinary PNG.
    header = np.zeros((), dtype=_DEPTH_HEADER)
    if not data.startswith(_PNG):
        if len(data) < _DEPTH_HEADER.itemsize:
            raise BadFrameError(f"image {name} is truncated or damaged")
        header = np.frombuffer(data, _DEPTH_HEADER, 1)[0]
        data = data[_DEPTH_HEADER.itemsize :]
    raw = decode_depth(data, name) if data.startswith(_PNG) else _rvl(data, name)
    if encoding_of(message) != "32FC1":
        return raw
    # Floats are stored as their inverse, in steps: depth = a / (value - b).
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = header["a"] / (raw.astype(np.float32) - header["b"])
    return measured(np.where(raw == 0, np.float32(0), depth).astype(np.float32), name)


def _rvl(data: bytes, name: str) -> NDArray[np.uint16]:
    """Decode run-length and variable-length coded depth: Wilson, Fast Lossless Depth (2017)."""
    size = np.frombuffer(data[:8], "<i4")
    if size.size != 2 or (size < 1).any() or int(size[0]) * int(size[1]) > 1 << 26:
        raise BadFrameError(f"image {name} is truncated, or compressed in an unknown way")
    width, height = int(size[0]), int(size[1])
    numbers = _variable_length(np.frombuffer(data, "<u4", (len(data) - 8) // 4, 8))
    # Runs: how many zeros, how many differences, then these; 2 k and 2 k + 1 mean k and -k - 1.
    steps = np.zeros(width * height, dtype=np.int64)
    is_measured = np.zeros(width * height, dtype=bool)
    position = at = 0
    while position < steps.size and at + 1 < numbers.size:
        zeros, count = int(numbers[at]), int(numbers[at + 1])
        start, at = position + zeros, at + 2
        position = start + count
        coded = numbers[at : at + count]
        if position > steps.size or coded.size < count:
            break
        steps[start:position] = (coded >> 1) ^ -(coded & 1)
        is_measured[start:position] = True
        at += count
    if position != steps.size:
        raise BadFrameError(f"image {name} is truncated or damaged")
    depth = np.where(is_measured, np.cumsum(steps), 0).astype(np.uint16)
    return measured(depth.reshape(height, width), name)


def _variable_length(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the numbers: groups of 3 bits, lowest first, each with a bit that says more follow."""
    shifts = np.arange(28, -1, -4, dtype=np.uint32)
    nibbles = ((words[:, None] >> shifts) & 15).ravel().astype(np.int64)
    ends = np.flatnonzero(nibbles < 8)
    if not ends.size:
        return np.empty(0, dtype=np.int64)
    nibbles = nibbles[: ends[-1] + 1]
    starts = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(nibbles.size) - np.repeat(starts, ends - starts + 1)
    # A number has 32 bits: more groups than that are damage, and must not overflow.
    parts = (nibbles & 7) << np.minimum(3 * place, 33)
    total: NDArray[np.int64] = np.add.reduceat(parts, starts)
    return total
