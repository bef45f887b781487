"""Reading of single images, with every way they can be broken told apart."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.errors import BadFrameError

Depth = TypeVar("Depth", NDArray[np.uint16], NDArray[np.float32])

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_SIGNATURE = b"\xff\xd8"
_JPEG_SCAN = b"\xff\xda"
_JPEG_END = b"\xff\xd9"
# Kinects mark pixels without a measurement with 0 or with all bits set.
_SATURATED = 65535


def read_colour(path: Path) -> NDArray[np.uint8]:
    """Read a colour image (H, W, 3) uint8 RGB; raises BadFrameError where it is unusable."""
    return decode_colour(_read(path), str(path))


def read_depth(path: Path) -> NDArray[np.uint16]:
    """Read a depth image (H, W) uint16 in the file's own unit; 0 where nothing was measured.

    Raises BadFrameError where it is unusable or no pixel has a measurement.
    """
    return decode_depth(_read(path), str(path))


def decode_colour(data: bytes, name: str) -> NDArray[np.uint8]:
    """Decode a PNG or JPEG as (H, W, 3) uint8 RGB; raises BadFrameError, naming it ``name``."""
    # A rotation noted in the file's metadata must not turn the image away from its depth.
    image = _decode(data, name, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def decode_depth(data: bytes, name: str) -> NDArray[np.uint16]:
    """Decode a PNG as (H, W) uint16 in its own unit; raises BadFrameError, naming it ``name``."""
    image = _decode(data, name, cv2.IMREAD_UNCHANGED)
    if image.dtype != np.uint16 or image.ndim != 2:
        channels = 1 if image.ndim == 2 else image.shape[2]
        raise BadFrameError(
            f"depth image {name} has {channels} channel(s) of {image.itemsize * 8} bits; "
            "it must have one of 16 bits"
        )
    return measured(np.asarray(image, dtype=np.uint16), name)


def measured(depth: Depth, name: str) -> Depth:
    """Return ``depth`` (H, W) with 0 where nothing was measured, whatever its sensor writes there.

    That is a value with all bits set, and NaN, infinity or a negative number. Raises BadFrameError
    where no pixel has a measurement.
    """
    if depth.dtype == np.uint16:
        unknown = depth == _SATURATED
    else:
        unknown = ~(np.isfinite(depth) & (depth > 0))
    depth = np.where(unknown, depth.dtype.type(0), depth)
    if not depth.any():
        raise BadFrameError(f"depth image {name} has no measurement at all (every pixel is 0)")
    return depth


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadFrameError(f"cannot read image {path}: {error.strerror or error}") from error


def _decode(data: bytes, name: str, flags: int) -> cv2.typing.MatLike:
    # OpenCV may hand back a partly decoded image without a word, so completeness is checked here.
    if not _is_complete(data):
        raise BadFrameError(f"image {name} is truncated or damaged; copy it again")
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if image is None:
        raise BadFrameError(f"image {name} cannot be decoded; it must be PNG or JPEG")
    return image


def _is_complete(data: bytes) -> bool:
    """Tell whether a PNG has all its chunks intact, or a JPEG its end; True for other formats."""
    if data.startswith(_PNG_SIGNATURE):
        return _png_is_complete(data)
    if data.startswith(_JPEG_SIGNATURE):
        # Coded data never contains these markers, and a thumbnail comes before the last scan.
        return data.rfind(_JPEG_END) > data.rfind(_JPEG_SCAN) > 0
    return len(data) > 0


def _png_is_complete(data: bytes) -> bool:
    """Walk the chunks (length, kind, content, CRC of kind and content) up to the end chunk."""
    view = memoryview(data)
    position = len(_PNG_SIGNATURE)
    while position + 12 <= len(data):
        content_end = position + 8 + int.from_bytes(view[position : position + 4], "big")
        if content_end + 4 > len(data):
            return False
        checksum = int.from_bytes(view[content_end : content_end + 4], "big")
        if zlib.crc32(view[position + 4 : content_end]) != checksum:
            return False
        if data[position + 4 : position + 8] == b"IEND":
            return True
        position = content_end + 4
    return False
