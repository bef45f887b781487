"""A run that has ended, read from its folder: what reports, exports and renderings begin with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.errors import DatasetError
from gsslam.evaluation.evaluate import evenly_spaced
from gsslam.evaluation.records import FrameRecord
from gsslam.export.ply import read_ply
from gsslam.results import SphereState
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.trajectory import Trajectory, nearest_within

# Times in a run folder's files are written to a microsecond; two frames are never this close.
_SAME_TIME_S = 1e-4


@dataclass(frozen=True)
class FinishedRun:
    """The small files of a run folder; the map is read when asked for."""

    folder: RunFolder
    config: SlamConfig
    # The section ``run`` of config.yaml, as it is.
    values: dict[str, Any]
    source: Source
    # metrics.json: the numbers, and what they are of.
    metrics: dict[str, Any]
    # All frames in order, missing ones too.
    records: list[FrameRecord]
    # Final poses of the frames that were seen, in the same order.
    trajectory: Trajectory

    @staticmethod
    def read(path: Path, *, dataset_path: Path | None = None) -> FinishedRun:
        """Read the run folder ``path``; raises DatasetError where a file is missing or damaged.

        ``dataset_path`` says where the dataset lies now, if it moved.
        """
        folder = RunFolder(path)
        config, values = folder.read_config()
        source = Source.from_values(values)
        if dataset_path is not None:
            source = replace(source, path=dataset_path)
        metrics, records = folder.read_metrics(), folder.read_frames()
        run = FinishedRun(
            *(folder, config, values, source, metrics, records),
            Trajectory.read(folder.trajectory),
        )
        if len(run.seen) != len(run.trajectory):
            raise DatasetError(
                f"{path} is damaged: {len(run.seen)} frames but {len(run.trajectory)} poses"
            )
        return run

    @property
    def seen(self) -> list[FrameRecord]:
        """The frames that have a pose, in its order."""
        return [record for record in self.records if record.seen]

    def tracked_views(self, count: int) -> list[tuple[FrameRecord, NDArray[np.float64]]]:
        """Return up to ``count`` frames that were not lost, evenly spaced, with their poses.

        Raises DatasetError where there is none.
        """
        poses = self.tracked().T_world_camera
        records = [record for record in self.seen if record.status == "tracked"]
        chosen = sorted(evenly_spaced(len(records), count))
        return [(records[i], poses[i]) for i in chosen]

    def tracked(self) -> Trajectory:
        """Return the poses of the frames that were not lost; raises DatasetError for none."""
        kept = [i for i, record in enumerate(self.seen) if record.status == "tracked"]
        if not kept:
            raise DatasetError(f"the run {self.folder.path} has no frame that was tracked")
        return Trajectory(self.trajectory.timestamps[kept], self.trajectory.T_world_camera[kept])

    def spheres(self) -> SphereState:
        """Read the map; raises DatasetError where it is missing, damaged or empty."""
        state = read_ply(self.folder.map)
        if len(state) == 0:
            raise DatasetError(f"the map {self.folder.map} has no spheres: nothing to show")
        return state

    def camera(self) -> Camera:
        """Return the camera of the run's images.

        Runs of earlier versions do not say it: their dataset is asked. Raises DatasetError where
        neither does.
        """
        values = self.values.get("camera")
        if values is None:
            return self.source.open().camera
        try:
            return Camera(**values)
        except TypeError as error:
            raise DatasetError(f"{self.folder.config} has no usable camera: {error}") from error

    def compared(self) -> tuple[Trajectory, Trajectory]:
        """Return the estimated and the true poses of the frames that have both.

        Both are empty where there is no ground truth. Raises DatasetError where it is damaged.
        """
        if not self.folder.ground_truth.exists():
            nothing = Trajectory(self.trajectory.timestamps[:0], self.trajectory.T_world_camera[:0])
            return nothing, nothing
        truth = Trajectory.read(self.folder.ground_truth)
        times = self.trajectory.timestamps
        nearest = nearest_within(truth.timestamps, times, _SAME_TIME_S)
        found = nearest >= 0
        chosen = nearest[found]
        estimate = Trajectory(times[chosen], self.trajectory.T_world_camera[chosen])
        return estimate, Trajectory(truth.timestamps[found], truth.T_world_camera[found])
