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
            bgr = np.ascontiguousarray(image[..., ::-1])
            if not cv2.imwrite(str(temporary / f"{count - 1:06d}.png"), bgr):
                raise OutputError(f"cannot write images to {folder}; is the disk full?")
    return count


def _frames_in(path: Path) -> int:
    capture = cv2.VideoCapture(str(path))
    try:
        return int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) if capture.isOpened() else 0
    finally:
        capture.release()


@contextlib.contextmanager
def _quiet_opencv() -> Iterator[None]:
    """Keep OpenCV from telling on stderr what is raised here."""
    level = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        cv2.utils.logging.setLogLevel(level)
