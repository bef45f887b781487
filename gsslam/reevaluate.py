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
    stored_costs = ("loop_s", "peak_memory_mb", "peak_budget_mb", "gpu_memory_mb")
    cost = Cost(*(stored.get(name) for name in stored_costs))
    tracked = TrackedSequence(records, trajectory, cost)
    with (
        make_slam(config, dataset.camera, device, slam_factory) as slam,
        interruptible() as interrupt,
    ):
        slam.map.load(state)
        metrics = report(
            folder, dataset, slam, tracked, stored, interrupt=interrupt, on_progress=on_progress
        )
    return RunResult(path, metrics, interrupt.requested)
