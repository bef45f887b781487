"""Images as a film (MP4) or as numbered PNG files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.errors import OutputError
from gsslam.files import atomic_folder, atomic_path

# VP9: the one codec of OpenCV's wheels that browsers play.
_CODEC = "vp09"

Image = NDArray[np.uint8]


def write_movie(path: Path, images: Iterable[Image], size: tuple[int, int], fps: float) -> int:
    """Write ``images`` (H, W, 3), red first, of ``size`` (W, H) to ``path`` (.mp4).

    Returns how many there were. Raises OutputError where the file cannot be written, which OpenCV
    does not say of itself: the frames are counted again.
    """
    count = 0
    with atomic_path(path) as temporary:
        temporary.touch()
        with _quiet_opencv():
            writer = cv2.VideoWriter(str(temporary), cv2.VideoWriter.fourcc(*_CODEC), fps, size)
            try:
                if not writer.isOpened():
                    raise OutputError(
                        f"cannot write {path}: this OpenCV has no VP9 encoder; "
                        "name a folder with --out for PNG images"
                    )
                for image in images:
                    writer.write(np.ascontiguousarray(image[..., ::-1]))
                    count += 1
            finally:
                writer.release()
            if _frames_in(temporary) != count:
                raise OutputError(f"cannot write {path}: the film is incomplete; is the disk full?")
    return count


def write_images(folder: Path, images: Iterable[Image]) -> int:
    """Write ``images`` (H, W, 3), red first, into the new ``folder``; return how many there were.

    Raises OutputError where the folder holds something already or cannot be written.
    """
    count = 0
    with atomic_folder(folder) as temporary:
        for count, image in enumerate(images, start=1):
            write_png(temporary / f"{count - 1:06d}.png", image)
    return count


def write_png(path: Path, image: Image) -> None:
    """Write ``image`` (H, W, 3), red first; raises OSError, where OpenCV would only tell stderr."""
    _, data = cv2.imencode(".png", np.ascontiguousarray(image[..., ::-1]))
    path.write_bytes(data.tobytes())


def _frames_in(path: Path) -> int:
    """Return how many images the film has; 0 where its end is missing."""
    if "moov" not in _boxes(path):  # FFmpeg would complain on stderr
        return 0
    capture = cv2.VideoCapture(str(path))
    try:
        return int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) if capture.isOpened() else 0
    finally:
        capture.release()


def _boxes(path: Path) -> list[str]:
    """Return the types of the outermost boxes of an MP4 that are whole (ISO 14496-12, 4.2)."""
    types, at, size = [], 0, path.stat().st_size
    with path.open("rb") as file:
        while at + 16 <= size:
            file.seek(at)
            head = file.read(16)
            length = int.from_bytes(head[:4], "big")
            if length == 1:  # a box over 4 GB says its size after its type
                length = int.from_bytes(head[8:], "big")
            at += max(length, 8)
            if at <= size:
                types.append(head[4:8].decode("latin-1"))
    return types


@contextlib.contextmanager
def _quiet_opencv() -> Iterator[None]:
    """Keep OpenCV from telling on stderr what is raised here."""
    level = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        cv2.utils.logging.setLogLevel(level)
