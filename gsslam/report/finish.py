"""From a finished loop to the files that describe it: shared by a run and by its re-evaluation."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gsslam.evaluation.evaluate import Evaluation, evaluate
from gsslam.evaluation.records import FrameRecord
from gsslam.evaluation.summary import quality_metrics, time_metrics
from gsslam.interrupt import Interrupt
from gsslam.report.cost_plot import plot_cost
from gsslam.report.frames_plot import plot_frames
from gsslam.report.trajectory_plot import plot_trajectory
from gsslam.results import Metric
from gsslam.run_folder import RunFolder
from gsslam.trajectory import Trajectory

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset
    from gsslam.slam import Slam

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    # "tracking" or "evaluating".
    step: str
    done: int
    total: int
    spheres: int
    # The frame just done; None while evaluating.
    record: FrameRecord | None = None


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Cost:
    """What a run took."""

    # Wall seconds from the first read to the finished trajectory, evaluation not included.
    loop_s: float | None
    # Largest resident memory of the whole process up to there, Python and torch included.
    peak_memory_mb: float | None
    # Largest of what the memory budget counts.
    peak_budget_mb: float | None
    # Most GPU memory that the run took, and what was in use before it: the context of this process
    # and other programs. None without a GPU.
    gpu_memory_mb: float | None = None
    gpu_context_mb: float | None = None

    def metrics(self, records: Sequence[FrameRecord], spheres: int) -> list[Metric]:
        """Return the metrics of time and memory."""
        return [
            *time_metrics(records, self.loop_s),
            Metric("loop_s", self.loop_s, "s"),
            Metric("peak_memory_mb", self.peak_memory_mb, "MB"),
            Metric("gpu_memory_mb", self.gpu_memory_mb, "MB"),
            Metric("gpu_context_mb", self.gpu_context_mb, "MB"),
            Metric("peak_budget_mb", self.peak_budget_mb, "MB"),
            Metric("spheres", spheres, ""),
        ]


@dataclass(frozen=True)
class TrackedSequence:
    """What the loop over the frames gave."""

    # All frames in order, missing ones too.
    records: list[FrameRecord]
    # Final poses of the frames that were seen, in the same order.
    trajectory: Trajectory
    cost: Cost


def report(
    folder: RunFolder,
    dataset: Dataset,
    slam: Slam,
    tracked: TrackedSequence,
    about: Mapping[str, Any],
    *,
    interrupt: Interrupt,
    on_progress: OnProgress,
) -> tuple[Metric, ...]:
    """Render and score all frames; write frames.jsonl, metrics.json, ground_truth.txt, the plots.

    ``about`` is what metrics.json says beside the metrics. Returns the metrics.
    """
    spheres = slam.map.count
    started = time.perf_counter()
    evaluation = evaluate(
        dataset,
        tracked.records,
        tracked.trajectory,
        slam.render,
        should_stop=lambda: interrupt.requested,
        on_frame=lambda done, total: on_progress(Progress("evaluating", done, total, spheres)),
    )
    if not evaluation.complete:
        _log.warning("evaluation interrupted: views are not scored; 'gsslam eval' can do it later")
    metrics = (
        *quality_metrics(evaluation),
        *tracked.cost.metrics(tracked.records, spheres),
        *map_metrics(folder),
        Metric("evaluation_s", time.perf_counter() - started, "s"),
    )
    folder.write_frames(evaluation.records)
    folder.write_metrics(metrics, about)
    if len(evaluation.truth):
        evaluation.truth.write(folder.ground_truth)
    write_plots(folder, evaluation, tracked.trajectory, float(about.get("memory_budget_mb") or 0))
    return metrics


def map_metrics(folder: RunFolder) -> list[Metric]:
    """Return the sizes of the map's files."""
    sizes = [path.stat().st_size / 1e6 for path in (folder.map, folder.compact_map)]
    names = ("map_mb", "compact_map_mb")
    return [Metric(name, size, "MB") for name, size in zip(names, sizes, strict=True)]


def write_plots(
    folder: RunFolder, evaluation: Evaluation, trajectory: Trajectory, budget_mb: float
) -> None:
    """Draw trajectory.png and memory.png and, where views were scored, frames.png."""
    compared = (evaluation.estimate, evaluation.truth)
    plot_trajectory(folder.trajectory_plot, evaluation.records, trajectory, compared)
    plot_cost(folder.memory_plot, evaluation.records, budget_mb)
    if evaluation.samples:
        plot_frames(folder.frames_plot, evaluation.samples)
