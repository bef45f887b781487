"""Evaluation: every frame is read again and rendered at its final pose."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

import numpy as np

from gsslam.datasets.base import Dataset
from gsslam.errors import DatasetError
from gsslam.evaluation.images import score_view
from gsslam.evaluation.records import FrameRecord
from gsslam.evaluation.trajectory import Array, position_errors
from gsslam.frame import Frame
from gsslam.results import RenderedView
from gsslam.trajectory import Trajectory

_Result = TypeVar("_Result")

# Scoring a view takes tens of megabytes.
_MOST_THREADS = 16

# The view of the map from the pose T_world_camera (4, 4), in the camera of the dataset.
Render = Callable[[Array], RenderedView]


@dataclass(frozen=True)
class Sample:
    """A frame and its rendered view, kept for the picture of the run."""

    frame: Frame
    view: RenderedView
    record: FrameRecord


@dataclass(frozen=True)
class Evaluation:
    """Scored frames, and the two trajectories where both have a pose."""

    # All frames of the run in order, skipped ones too.
    records: tuple[FrameRecord, ...]
    samples: tuple[Sample, ...]
    # The poses of the frames that have ground truth, as estimated and as measured, of equal length.
    estimate: Trajectory
    truth: Trajectory
    # False: the evaluation was stopped; the views are not scored then.
    complete: bool


def evaluate(
    dataset: Dataset,
    records: Sequence[FrameRecord],
    trajectory: Trajectory,
    render: Render,
    *,
    sample_count: int = 6,
    should_stop: Callable[[], bool] = lambda: False,
    on_frame: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Score every frame of ``records`` that was tracked, successfully or not.

    ``trajectory`` holds their poses in order; ``on_frame`` is told how many are done, of how many.
    When ``should_stop`` turns true, poses are still compared, but no view is scored: scores of a
    part of the frames would mislead. Raises DatasetError where a frame cannot be read again.
    """
    seen = [record for record in records if record.seen]
    if len(seen) != len(trajectory):
        raise DatasetError(f"the run is damaged: {len(seen)} frames but {len(trajectory)} poses")
    sampled = evenly_spaced(len(seen), sample_count)
    truths: list[Array | None] = []
    scored: list[FrameRecord] = []
    samples: list[Sample] = []
    score = _Scorer(dataset, seen, trajectory, render, should_stop)
    for position, (truth_pose, sample) in enumerate(_in_parallel(score.at, len(seen))):
        truths.append(truth_pose)
        if sample is None:
            continue
        scored.append(sample.record)
        if position in sampled:
            samples.append(sample)
        on_frame(position + 1, len(seen))
    complete = len(scored) == len(seen)
    estimate, truth = _with_truth(trajectory, truths)
    compared = _with_position_errors(scored if complete else seen, truths, estimate, truth)
    by_index = {record.index: record for record in compared}
    merged = tuple(by_index.get(record.index, record) for record in records)
    return Evaluation(merged, tuple(samples), estimate, truth, complete)


@dataclass(frozen=True)
class _Scorer:
    """Scores frames, in any thread."""

    dataset: Dataset
    records: Sequence[FrameRecord]
    trajectory: Trajectory
    render: Render
    should_stop: Callable[[], bool]
    # The map is rendered into buffers that are used again.
    rendering: threading.Lock = field(default_factory=threading.Lock)

    def at(self, position: int) -> tuple[Array | None, Sample | None]:
        """Return the true pose and the scored view of a frame; no view once stopped."""
        frame = self.dataset[self.records[position].index]
        if self.should_stop():
            return frame.T_world_camera, None
        with self.rendering:
            view = self.render(self.trajectory.T_world_camera[position])
        record = replace(self.records[position], **asdict(score_view(view, frame)))
        return frame.T_world_camera, Sample(frame, view, record)


def _in_parallel(work: Callable[[int], _Result], count: int) -> Iterator[_Result]:
    """Yield ``work(i)`` for i = 0, 1, ... count - 1, with a few of them on their way at a time.

    Decoding and scoring of images leave the interpreter's lock, so that threads help.
    """
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="gsslam-evaluation") as pool:
        ahead: deque[Future[_Result]] = deque()
        try:
            for i in range(count):
                ahead.append(pool.submit(work, i))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _with_truth(
    trajectory: Trajectory, truths: Sequence[Array | None]
) -> tuple[Trajectory, Trajectory]:
    """Return the estimated and the true poses of the frames that have both."""
    chosen = [i for i, truth in enumerate(truths) if truth is not None]
    estimate = Trajectory(trajectory.timestamps[chosen], trajectory.T_world_camera[chosen])
    poses = np.array([truths[i] for i in chosen], dtype=np.float64).reshape(-1, 4, 4)
    return estimate, Trajectory(estimate.timestamps, poses)


def _with_position_errors(
    records: Sequence[FrameRecord],
    truths: Sequence[Array | None],
    estimate: Trajectory,
    truth: Trajectory,
) -> list[FrameRecord]:
    """Return ``records`` with the position errors of those that have a truth."""
    if len(truth) == 0:
        return list(records)
    errors = iter(position_errors(estimate.T_world_camera, truth.T_world_camera))
    return [
        record if pose is None else replace(record, position_error_cm=100 * float(next(errors)))
        for record, pose in zip(records, truths, strict=True)
    ]


def evenly_spaced(count: int, wanted: int) -> frozenset[int]:
    """Return up to ``wanted`` positions spread evenly over ``count`` frames, ends included."""
    return frozenset(np.linspace(0, count - 1, min(wanted, count)).round().astype(int).tolist())
