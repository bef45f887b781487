"""One run: a dataset in, a run folder out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gsslam
from gsslam.camera import Camera
from gsslam.checkpoint import Checkpoint
from gsslam.config import SlamConfig
from gsslam.device import resolve_device
from gsslam.errors import CheckpointError, ConfigError, DatasetError, OutputError
from gsslam.export.compact import write_compact
from gsslam.export.ply import write_ply
from gsslam.extras import require
from gsslam.gpu_memory import GpuMemory
from gsslam.interrupt import interruptible
from gsslam.observer import Observer, Unobserved
from gsslam.presets import config_hash
from gsslam.recorder import recorder
from gsslam.report import OnProgress, TrackedSequence, map_metrics, report
from gsslam.results import Metric
from gsslam.run_folder import RunFolder, claimed_folder
from gsslam.source import Source
from gsslam.trace import Trace
from gsslam.tracking_loop import LoopOptions, LoopResult, TrackingLoop

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset
    from gsslam.slam import Slam

SlamFactory = Callable[..., "Slam"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """What a run gave."""

    folder: Path
    metrics: tuple[Metric, ...]
    # Ctrl-C ended the run or its evaluation early.
    interrupted: bool


@dataclass(frozen=True)
class RunOptions:
    """What decides how a run goes, but, ``realtime`` apart, not its result."""

    device: str = "cpu"
    loop: LoopOptions = field(default_factory=LoopOptions)
    # Write trace.json.
    trace: bool = False
    # Render and score every frame in the end; evaluate_run can do it later.
    evaluate: bool = True


def run_dataset(
    dataset: Dataset,
    config: SlamConfig,
    out_folder: Path,
    *,
    options: RunOptions | None = None,
    source: Source | None = None,
    on_progress: OnProgress = lambda progress: None,
    observer: Observer | None = None,
    slam_factory: SlamFactory | None = None,
) -> RunResult:
    """Run SLAM over ``dataset``, evaluate it and write the run folder ``out_folder``.

    ``source`` says how ``dataset`` was opened, so that the run can be evaluated or resumed later.
    Ctrl-C ends the run after the current frame, with all results up to there. Raises ConfigError or
    OutputError where ``out_folder`` cannot be used, DatasetError where most frames are unusable.
    Whatever else stops tracking or mapping is raised again after trajectory, map and frames up to
    there were written; ``evaluate_run`` can evaluate those.
    """
    options = options or RunOptions()
    source = source or Source(dataset.name)
    with claimed_folder(out_folder) as folder, folder.logging():
        _log.info("gsslam %s on %s, device %s", gsslam.__version__, dataset.name, options.device)
        about = {**source.to_values(), **_run_values(options)}
        folder.write_config(config, {**about, "camera": asdict(dataset.camera)})
        run = _Run(folder, dataset, config, options, on_progress, observer, slam_factory)
        return run.execute()


def resume_run(
    path: Path,
    *,
    device: str | None = None,
    on_progress: OnProgress = lambda progress: None,
    observer: Observer | None = None,
    slam_factory: SlamFactory | None = None,
) -> RunResult:
    """Go on with the run folder ``path`` from its last checkpoint, or from the start without one.

    Trajectory and map are those of a run that was never stopped. The device is that of the run; it
    can be changed, which changes the result. Raises DatasetError where ``path`` is no run folder or
    the dataset is gone, ConfigError where the run had reached its end, CheckpointError where the
    checkpoint does not fit.
    """
    folder = RunFolder(path)
    config, values = folder.read_config()
    if folder.metrics.exists() and not folder.checkpoint.exists():
        raise ConfigError(f"the run {path} has ended and has no checkpoint: nothing to resume")
    options = _options_from_values(values)
    if device is not None:
        options = replace(options, device=device)
    dataset = Source.from_values(values).open()
    checkpoint = Checkpoint.read(folder.checkpoint) if folder.checkpoint.exists() else None
    if checkpoint is not None and checkpoint.config_hash != config_hash(config):
        raise CheckpointError(f"{folder.config} has been changed since {folder.checkpoint}")
    folder.remove_temporaries()
    with folder.logging():
        _log.info("resumed at frame %d", checkpoint.next_index if checkpoint else 0)
        run = _Run(folder, dataset, config, options, on_progress, observer, slam_factory)
        return run.execute(checkpoint)


@dataclass(frozen=True)
class _Run:
    """A run whose folder is there."""

    folder: RunFolder
    dataset: Dataset
    config: SlamConfig
    options: RunOptions
    on_progress: OnProgress
    observer: Observer | None
    slam_factory: SlamFactory | None

    def execute(self, checkpoint: Checkpoint | None = None) -> RunResult:
        """Track, save what evaluation needs, and evaluate."""
        folder, trace = self.folder, Trace(enabled=self.options.trace)
        recorder.clear()
        gpu = GpuMemory(resolve_device(self.options.device))
        with interruptible() as interrupt, self._make_slam(trace) as slam:
            loop = TrackingLoop(
                *(self.dataset, slam, self.config, self.options.loop),
                interrupt=interrupt,
                on_progress=self.on_progress,
                save=self._save,
                trace=trace,
                observer=self.observer or Unobserved(),
                gpu=gpu,
            ).run(checkpoint)
            if self.options.trace:
                trace.write(folder.trace)
            about = self._about(loop)
            metrics = _write_raw_results(folder, slam, loop.tracked, about)
            if self.config.features.enabled:
                self._write_features(slam)
            if loop.failure is not None:
                recorder.write(folder.flight)
                raise loop.failure
            if not loop.interrupted:
                folder.checkpoint.unlink(missing_ok=True)
            interrupt.requested = False
            if self.options.evaluate:
                metrics = report(
                    *(folder, self.dataset, slam, loop.tracked, about),
                    interrupt=interrupt,
                    on_progress=self.on_progress,
                )
        _log.info("finished: %s", ", ".join(f"{m.name}={m.value}" for m in metrics))
        return RunResult(folder.path, metrics, loop.interrupted or interrupt.requested)

    def _save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; without one the run is still worth going on with."""
        try:
            checkpoint.write(self.folder.checkpoint)
        except OutputError as error:
            _log.warning("no checkpoint at frame %d: %s", checkpoint.next_index, error)

    def _write_features(self, slam: Slam) -> None:
        """Write what was learned; a run that was too short for it is still a run."""
        from gsslam.features.files import write_features

        try:
            write_features(slam.features, self.config, self.folder.features)
        except ConfigError as error:
            _log.warning("%s", error)

    def _make_slam(self, trace: Trace) -> Slam:
        if self.config.features.enabled:
            # Not to be missed only when all is done.
            require("safetensors", "features", "saving learned features")
        options = self.options.loop
        return make_slam(
            *(self.config, self.dataset.camera, self.options.device, self.slam_factory),
            learn=True,
            threads=options.threads,
            realtime=options.realtime,
            trace=trace,
        )

    def _about(self, loop: LoopResult) -> dict[str, Any]:
        """Return what metrics.json says beside the metrics."""
        return {
            "dataset": self.dataset.name,
            "width": self.dataset.camera.width,
            "height": self.dataset.camera.height,
            **_run_values(self.options),
            "seed": self.config.seed,
            "memory_budget_mb": self.config.map.memory_budget_mb,
            "config_hash": config_hash(self.config),
            "interrupted": loop.interrupted,
            "failure": None if loop.failure is None else str(loop.failure),
        }


def make_slam(
    config: SlamConfig,
    camera: Camera,
    device: str,
    factory: SlamFactory | None = None,
    *,
    learn: bool = False,
    **options: Any,
) -> Slam:
    """Return ``factory(config, camera, device, **options)``, by default a Slam.

    Unless it is to ``learn``, it does without features, for which it would need the encoder.
    """
    if not learn:
        config = replace(config, features=replace(config.features, enabled=False))
    if factory is None:
        # Here, so that the command line answers --help without loading torch.
        import torch

        from gsslam.slam import Slam

        # Torch's idle threads spin, which takes the processors from the native pool.
        torch.set_num_threads(1)
        factory = Slam
    return factory(config, camera, device, **options)


def _write_raw_results(
    folder: RunFolder, slam: Slam, tracked: TrackedSequence, about: dict[str, Any]
) -> tuple[Metric, ...]:
    """Write what ``gsslam eval`` needs, so that nothing is lost if the evaluation is cut short.

    Returns the metrics that need no evaluation.
    The smallest files come first: on a full disk, some are better than none.
    """
    state = slam.map.state()
    tracked.trajectory.write(folder.trajectory)
    folder.write_frames(tracked.records)
    write_compact(state, folder.compact_map)
    write_ply(state, folder.map)
    metrics = (*tracked.cost.metrics(tracked.records, len(state)), *map_metrics(folder))
    folder.write_metrics(metrics, about)
    return metrics


def _run_values(options: RunOptions) -> dict[str, Any]:
    """Return what config.yaml and metrics.json say about how the run went."""
    loop = options.loop
    return {
        "device": options.device,
        "version": gsslam.__version__,
        "threads": loop.threads,
        "realtime": loop.realtime,
        "checkpoint_every": loop.checkpoint_every,
        "trace": options.trace,
        "evaluate": options.evaluate,
    }


def _options_from_values(values: dict[str, Any]) -> RunOptions:
    try:
        loop = LoopOptions(values["threads"], values["realtime"], values["checkpoint_every"])
        return RunOptions(values["device"], loop, values["trace"], values["evaluate"])
    except KeyError as error:
        raise DatasetError(f"the run's config.yaml does not say its {error.args[0]}") from error
