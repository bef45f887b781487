"""Conversion of any dataset to the TUM benchmark's layout, which most SLAM programs read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gsslam.datasets.base import Dataset
from gsslam.datasets.sequence import RecordedSequence
from gsslam.datasets.tum_writer import DEPTH_SCALE, TumWriter
from gsslam.errors import BadFrameError, ConfigError, DatasetError
from gsslam.files import atomic_folder

# Depth images with coarser steps than 2 mm are not kept as they are: they are metres in floats.
_LEAST_INTEGER_SCALE = 500.0


@dataclass(frozen=True)
class Conversion:
    """What was written."""

    frames: int
    # Frames that cannot be read, and why the first of them.
    skipped: int
    reason: str
    # Measurements too far away for 16 bits.
    too_far: int
    depth_scale: float


def convert_dataset(
    dataset: Dataset,
    folder: Path,
    *,
    depth_scale: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Conversion:
    """Write ``dataset`` into the new ``folder``, which appears whole or not at all.

    Frames are written as they are delivered: undistorted, and depth registered to colour. A depth
    image has ``depth_scale`` at one metre; without it that of the source where it has integers,
    so that they are kept, else 5000. ``on_progress`` is called with the frames done and in all.
    Raises DatasetError where no frame can be read, OutputError where writing fails.
    """
    scale = depth_scale if depth_scale is not None else _source_scale(dataset)
    if not 0 < scale < float("inf"):
        raise ConfigError(f"depth scale {scale:g} must be positive and finite")
    skipped, reason = 0, ""
    with atomic_folder(folder) as temporary, TumWriter(temporary, dataset.camera, scale) as writer:
        for index in range(len(dataset)):
            try:
                writer.add(dataset[index])
            except BadFrameError as error:
                skipped, reason = skipped + 1, reason or str(error)
            if on_progress is not None:
                on_progress(index + 1, len(dataset))
        if skipped == len(dataset):
            raise DatasetError(f"{dataset.name} has no usable frame: {reason}")
    return Conversion(len(dataset) - skipped, skipped, reason, writer.too_far, scale)


def _source_scale(dataset: Dataset) -> float:
    scale = dataset.depth_scale if isinstance(dataset, RecordedSequence) else 0.0
    return scale if scale >= _LEAST_INTEGER_SCALE else DEPTH_SCALE
