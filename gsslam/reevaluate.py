"""A run folder evaluated again, from its files alone and the dataset they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gsslam.export.ply import read_ply
from gsslam.interrupt import interruptible
from gsslam.report import Cost, OnProgress, TrackedSequence, report
from gsslam.run import RunResult, SlamFactory, make_slam
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.trajectory import Trajectory


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
    folder = RunFolder(path)
    config, run = folder.read_config()
    source = Source.from_values(run)
    if dataset_path is not None:
        source = replace(source, path=dataset_path)
    stored = folder.read_metrics()
    records = folder.read_frames()
    trajectory = Trajectory.read(folder.trajectory)
    state = read_ply(folder.map)
    dataset = source.open()
    slam = make_slam(config, dataset.camera, device, slam_factory)
    slam.map.load(state)
    cost = Cost(stored.get("loop_s"), stored.get("peak_memory_mb"), stored.get("peak_budget_mb"))
    tracked = TrackedSequence(records, trajectory, cost)
    with interruptible() as interrupt:
        metrics = report(
            folder, dataset, slam, tracked, stored, interrupt=interrupt, on_progress=on_progress
        )
    return RunResult(path, metrics, interrupt.requested)
