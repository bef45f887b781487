"""A video for colour and a folder of depth images: ``rgb.mp4``, ``depth/``, ``camera.yaml``."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.camera_file import CAMERA_FILE, read_camera
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.folder import list_images, name_times
from gsslam.datasets.images import read_depth
from gsslam.datasets.sequence import FrameFiles, RecordedSequence
from gsslam.datasets.tum import with_ground_truth
from gsslam.errors import BadFrameError, DatasetError

_SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v")
# Images kept for a reader that comes a little later than another one.
_KEPT = 8


class VideoFile:
    """The images of a video by their number, which several threads may ask for.

    Seeking is inexact in many formats, so that the video is decoded from its beginning: quick in
    order, slow backwards.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises DatasetError where it is no video."""
        # FFmpeg and OpenCV write to the terminal what is said here in one line.
        os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
        self.path = path
        self._lock = threading.Lock()
        self._kept: dict[int, NDArray[np.uint8]] = {}
        self._start()
        self.frame_count = int(self._capture.get(cv2.CAP_PROP_FRAME_COUNT))

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return image ``index`` (H, W, 3), RGB; raises BadFrameError where it is not there."""
        with self._lock:
            if index in self._kept:
                return self._kept[index]
            if index < self._next:
                self._start()
            while self._next < index:
                self._step(self._capture.grab())
            good, image = self._capture.read()
            self._step(good)
            colour = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), dtype=np.uint8)
            self._kept[index] = colour
            self._kept.pop(min(self._kept) if len(self._kept) > _KEPT else -1, None)
            return colour

    def _start(self) -> None:
        self._kept.clear()
        self._next = 0
        level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)
        self._capture = cv2.VideoCapture(str(self.path), cv2.CAP_FFMPEG)
        cv2.utils.logging.setLogLevel(level)
        # The depth images know nothing of a rotation noted in the file.
        self._capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 0)
        if not self._capture.isOpened():
            raise DatasetError(f"{self.path} is truncated, damaged or no video")

    def _step(self, good: bool) -> None:
        if not good:
            raise BadFrameError(f"{self.path} ends or is damaged at frame {self._next}")
        self._next += 1


@dataclass(frozen=True)
class _VideoFrame:
    """A frame of the video with its depth image."""

    timestamp: float
    index: int
    video: VideoFile
    depth: Path
    T_world_camera: NDArray[np.float64] | None

    @property
    def colour_name(self) -> str:
        return f"{self.index} of {self.video.path}"

    @property
    def depth_name(self) -> str:
        return str(self.depth)

    def read_colour(self) -> NDArray[np.uint8]:
        return self.video.read(self.index)

    def read_depth(self) -> NDArray[np.uint16]:
        return read_depth(self.depth)


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open ``folder``: the n-th depth image, in natural order, belongs to the video's n-th frame.

    Names of depth images that are increasing decimal numbers are time stamps in seconds.
    """
    camera = read_camera(folder / CAMERA_FILE)
    depth = list_images(folder / "depth")
    video = VideoFile(_find_video(folder))
    if video.frame_count != len(depth):
        raise DatasetError(
            f"{video.path} has {video.frame_count} frames but {folder / 'depth'} has {len(depth)} "
            "images; each frame needs its depth image"
        )
    times = name_times(depth) or [index / camera.fps for index in range(len(depth))]
    files = [FrameFiles(*triple) for triple in zip(times, depth, depth, strict=True)]
    files = with_ground_truth(files, folder / "groundtruth.txt")
    frames = [
        _VideoFrame(file.timestamp, index, video, file.depth, file.T_world_camera)
        for index, file in enumerate(files)
    ]
    return RecordedSequence(entry.name, frames, camera.sensor(), options)


def _find_video(folder: Path) -> Path:
    videos = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    named = [path for path in videos if path.stem == "rgb"]
    if len(named or videos) != 1:
        raise DatasetError(
            f"{folder} has {len(videos)} videos ({', '.join(_SUFFIXES)}); call the one with the "
            "colour images rgb.mp4 or the like"
        )
    return (named or videos)[0]
