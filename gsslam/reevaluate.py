"""A run folder evaluated again, from its files alone and the dataset they name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from gsslam.export.ply import read_ply
from gsslam.finished_run import FinishedRun
from gsslam.interrupt import interruptible
from gsslam.report import Cost, OnProgress, TrackedSequence, report
from gsslam.run import RunResult, SlamFactory, make_slam


def evaluate_run(
    path: Path,
    *,
    dataset_path: Path | None = None,
    device: str = "cpu",
    on_progress: OnProgress = lambda progress: None,
    slam_factory: SlamFactory | None = None,
) -> RunResult:
    """Compute the metrics of the run folder ``path`` again and replace those in it.

    Renders map.ply at the poses of trajectory.txt; what only the run itself could measure (time,
    memory) is kept. ``dataset_path`` says where the dataset lies now, if it moved. Raises
    DatasetError where the folder or the dataset is incomplete.
    """
    run = FinishedRun.read(path, dataset_path=dataset_path)
    state = read_ply(run.folder.map)
    dataset = run.source.open()
    cost = Cost(**{stored.name: run.metrics.get(stored.name) for stored in fields(Cost)})
    tracked = TrackedSequence(run.records, run.trajectory, cost)
    with (
        make_slam(run.config, dataset.camera, device, slam_factory) as slam,
        interruptible() as interrupt,
    ):
        slam.map.load(state)
        metrics = report(
            *(run.folder, dataset, slam, tracked, run.metrics),
            interrupt=interrupt,
            on_progress=on_progress,
        )
    return RunResult(path, metrics, interrupt.requested)
