"""Any folder of images: ``rgb/``, ``depth/``, ``camera.yaml``, ``groundtruth.txt`` if known."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.camera_file import CAMERA_FILE, read_camera
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.sequence import FrameFiles, RecordedSequence
from gsslam.datasets.tum import pair_by_time, with_ground_truth
from gsslam.errors import DatasetError

_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg"}
_DECIMAL = re.compile(r"\d+\.\d+")


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open ``folder``.

    Files are taken in natural order (frame2 before frame10). Names that are increasing decimal
    numbers are time stamps in seconds, and colour and depth are then paired by time; others are
    paired by position.
    """
    camera = read_camera(folder / CAMERA_FILE)
    colour, depth = list_images(folder / "rgb"), list_images(folder / "depth")
    files = with_ground_truth(_pair(colour, depth, camera.fps), folder / "groundtruth.txt")
    return RecordedSequence(entry.name, files, camera.sensor(), options)


def natural_key(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that compares the numbers in a file name by value."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def list_images(folder: Path) -> list[Path]:
    """Return the images in ``folder`` in natural order; raises DatasetError where there is none."""
    try:
        paths = [path for path in folder.iterdir() if path.suffix.lower() in _IMAGE_SUFFIXES]
    except OSError as error:
        raise DatasetError(f"cannot read folder {folder}: {error.strerror or error}") from error
    if not paths:
        raise DatasetError(f"{folder} has no PNG or JPEG image")
    return sorted(paths, key=natural_key)


def name_times(paths: list[Path]) -> list[float] | None:
    """Return the times that the file names say, None where they say none."""
    if not all(_DECIMAL.fullmatch(path.stem) for path in paths):
        return None
    times = [float(path.stem) for path in paths]
    return times if all(a < b for a, b in itertools.pairwise(times)) else None


def _pair(colour: list[Path], depth: list[Path], fps: float) -> list[FrameFiles]:
    colour_times, depth_times = name_times(colour), name_times(depth)
    if colour_times and depth_times:
        return pair_by_time(
            list(zip(colour_times, colour, strict=True)), list(zip(depth_times, depth, strict=True))
        )
    if len(colour) != len(depth):
        raise DatasetError(
            f"{colour[0].parent} has {len(colour)} images but {depth[0].parent} has {len(depth)}; "
            "without time stamps as file names they are paired by position"
        )
    times = colour_times or [index / fps for index in range(len(colour))]
    return [FrameFiles(*triple) for triple in zip(times, colour, depth, strict=True)]
