"""One run: a dataset in, a run folder out."""

from __future__ import annotations

import logging
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gsslam
from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.errors import BadFrameError, DatasetError
from gsslam.evaluation.records import FrameRecord
from gsslam.export.compact import write_compact
from gsslam.export.ply import write_ply
from gsslam.interrupt import Interrupt, interruptible
from gsslam.keyframes import is_heldout
from gsslam.presets import config_hash
from gsslam.reader import FrameReader
from gsslam.report import Cost, OnProgress, Progress, TrackedSequence, map_metrics, report
from gsslam.results import Metric
from gsslam.run_folder import RunFolder, claimed_folder
from gsslam.source import Source
from gsslam.trajectory import Trajectory

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset
    from gsslam.slam import Slam

SlamFactory = Callable[[SlamConfig, Camera, str], "Slam"]

# A sequence is refused when more than half of this many first frames are unusable.
_TRIAL_FRAMES = 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """What a run gave."""

    folder: Path
    metrics: tuple[Metric, ...]
    # Ctrl-C ended the run or its evaluation early.
    interrupted: bool


@dataclass(frozen=True)
class _Loop:
    """What the loop over the frames gave, and why it ended."""

    tracked: TrackedSequence
    interrupted: bool
    # What stopped it; None where it reached its end or Ctrl-C did.
    failure: Exception | None


def run_dataset(
    dataset: Dataset,
    config: SlamConfig,
    out_folder: Path,
    *,
    device: str = "cpu",
    source: Source | None = None,
    on_progress: OnProgress = lambda progress: None,
    slam_factory: SlamFactory | None = None,
) -> RunResult:
    """Run SLAM over ``dataset``, evaluate it and write the run folder ``out_folder``.

    ``source`` says how ``dataset`` was opened, so that the run can be evaluated again later. Ctrl-C
    ends the run after the current frame, with all results up to there. Raises ConfigError or
    OutputError where ``out_folder`` cannot be used, DatasetError where most frames are unusable.
    Whatever else stops tracking is raised again after trajectory, map and frames up to there were
    written; ``evaluate_run`` can evaluate those.
    """
    source = source or Source(dataset.name)
    with claimed_folder(out_folder) as folder, folder.logging(), interruptible() as interrupt:
        _log.info("gsslam %s on %s, device %s", gsslam.__version__, dataset.name, device)
        folder.write_config(config, {**source.to_values(), **_versions(device)})
        slam = make_slam(config, dataset.camera, device, slam_factory)
        loop = _run_loop(dataset, slam, config, interrupt, on_progress)
        about = _about(dataset, config, device, loop)
        _write_raw_results(folder, slam, loop.tracked, about)
        if loop.failure is not None:
            raise loop.failure
        interrupt.requested = False
        metrics = report(
            *(folder, dataset, slam, loop.tracked, about),
            interrupt=interrupt,
            on_progress=on_progress,
        )
        _log.info("finished: %s", ", ".join(f"{m.name}={m.value}" for m in metrics))
    return RunResult(out_folder, metrics, loop.interrupted or interrupt.requested)


def make_slam(
    config: SlamConfig, camera: Camera, device: str, factory: SlamFactory | None = None
) -> Slam:
    """Return ``factory(config, camera, device)``, by default a Slam."""
    if factory is None:
        # Here, so that the command line answers --help without loading torch.
        import torch

        from gsslam.slam import Slam

        # Torch's idle threads spin, which takes the processors from the native pool.
        torch.set_num_threads(1)
        factory = Slam
    return factory(config, camera, device)


def _run_loop(
    dataset: Dataset,
    slam: Slam,
    config: SlamConfig,
    interrupt: Interrupt,
    on_progress: OnProgress,
) -> _Loop:
    """Track every frame until the end, Ctrl-C, or a failure after the first frame."""
    records: list[FrameRecord] = []
    failure: Exception | None = None
    total = len(dataset)
    started = time.perf_counter()
    with FrameReader(dataset) as reader:
        for index in range(total):
            heldout = is_heldout(index, config.keyframes.heldout_every)
            try:
                records.append(_process(reader, slam, index, heldout=heldout))
            except Exception as error:  # of any kind: what there is must be saved first
                _log.error("stopped at frame %d: %s", index, error)
                failure = error
                break
            _refuse_unusable(records, total)
            on_progress(Progress("tracking", index + 1, total, slam.map.count, records[-1]))
            if interrupt.requested:
                _log.warning("interrupted after frame %d of %d", index + 1, total)
                break
    tracked_count = sum(record.status != "skipped" for record in records)
    if tracked_count == 0:
        raise failure or DatasetError(f"{dataset.name} has no usable frame")
    # The frame that failed may have a pose by now; it has no record.
    finished = slam.finish()
    trajectory = Trajectory(
        finished.timestamps[:tracked_count], finished.T_world_camera[:tracked_count]
    )
    budgeted = max((record.memory_mb or 0.0 for record in records), default=0.0)
    cost = Cost(time.perf_counter() - started, _peak_memory_mb(), budgeted)
    return _Loop(TrackedSequence(records, trajectory, cost), interrupt.requested, failure)


def _process(reader: FrameReader, slam: Slam, index: int, *, heldout: bool) -> FrameRecord:
    """Track the next frame; one that cannot be read is skipped."""
    try:
        frame, reading_ms = reader.read()
    except BadFrameError as error:
        _log.warning("skipped frame %d: %s", index, error)
        return FrameRecord.of_skipped(index, str(error), heldout=heldout, reading_ms=0.0)
    result = slam.track(frame)
    if not result.tracked:
        _log.warning("lost frame %d: %s", index, result.reason)
    return FrameRecord.of_result(
        result, heldout=heldout, reading_ms=reading_ms, spheres=slam.map.count
    )


def _refuse_unusable(records: list[FrameRecord], total: int) -> None:
    """Raise DatasetError once more than half of the first frames were skipped."""
    trial = min(_TRIAL_FRAMES, total)
    skipped = [record for record in records[:trial] if record.status == "skipped"]
    if len(records) <= trial and 2 * len(skipped) > trial:
        first = skipped[0]
        raise DatasetError(
            f"{len(skipped)} of the first {len(records)} frames are unusable;"
            f" frame {first.index}: {first.reason}"
        )


def _write_raw_results(
    folder: RunFolder, slam: Slam, tracked: TrackedSequence, about: dict[str, Any]
) -> None:
    """Write what ``gsslam eval`` needs, so that nothing is lost if the evaluation is cut short."""
    state = slam.map.state()
    write_ply(state, folder.map)
    write_compact(state, folder.compact_map)
    tracked.trajectory.write(folder.trajectory)
    folder.write_frames(tracked.records)
    metrics = [*tracked.cost.metrics(tracked.records, len(state)), *map_metrics(folder)]
    folder.write_metrics(metrics, about)


def _about(dataset: Dataset, config: SlamConfig, device: str, loop: _Loop) -> dict[str, Any]:
    """Return what metrics.json says beside the metrics."""
    return {
        "dataset": dataset.name,
        "width": dataset.camera.width,
        "height": dataset.camera.height,
        **_versions(device),
        "seed": config.seed,
        "memory_budget_mb": config.map.memory_budget_mb,
        "config_hash": config_hash(config),
        "interrupted": loop.interrupted,
        "failure": None if loop.failure is None else str(loop.failure),
    }


def _versions(device: str) -> dict[str, Any]:
    return {"device": device, "version": gsslam.__version__}


def _peak_memory_mb() -> float:
    """Return the largest resident memory of this process so far, in 1e6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kibibytes, macOS bytes.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
