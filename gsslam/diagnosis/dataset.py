"""All checks of a dataset, in the order in which their causes should go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gsslam.datasets import open_dataset
from gsslam.datasets.base import Dataset
from gsslam.datasets.registry import resolve
from gsslam.datasets.sequence import RecordedSequence
from gsslam.diagnosis.depth import check_depth_range, check_registration
from gsslam.diagnosis.files import check_names, check_poses, check_readable, check_timestamps
from gsslam.diagnosis.finding import Finding
from gsslam.diagnosis.geometry import Matches, can_be_checked, check_geometry
from gsslam.diagnosis.motion import check_order, check_overlap, check_speed
from gsslam.diagnosis.sample import Sample, read_sample
from gsslam.diagnosis.tracks import Tracks, follow
from gsslam.errors import DatasetError
from gsslam.frame import Frame

# Frames between two whose corners are compared: the widest over which most are found again.
_GAPS = (6, 4, 3, 2, 1)
_ENOUGH_SHARE = 0.5
# Datasets whose images are ordered and paired by their files' names.
_BY_POSITION = "folder/"


def diagnose(name: str, path: Path | None = None) -> list[Finding]:
    """Open the sequence ``name`` as ``open_dataset`` does and return what is wrong with it.

    That it is refused when it is opened is a finding too. Raises DatasetError where there is no
    such dataset, or nothing at its path.
    """
    name, path = resolve(name, path)
    try:
        dataset = open_dataset(name, path)
    except DatasetError as error:
        if path is None:
            raise
        return [Finding("opening", f"it cannot be opened: {error}", "mend this first, then retry")]
    return diagnose_dataset(dataset)


def diagnose_dataset(dataset: Dataset) -> list[Finding]:
    """Look at twenty frames of ``dataset`` and return what is wrong with it, if anything.

    A finding that would only follow from another one is left out.
    """
    sample = read_sample(dataset)
    tried = len(sample.frames) + len(sample.unreadable)
    findings: list[Finding | None] = [check_readable(sample.unreadable, tried)]
    findings += _check_files(dataset, sample)
    poses = [f.T_world_camera for f in sample.frames if f.T_world_camera is not None]
    bad_poses = check_poses(poses)
    findings.append(bad_poses)
    out_of_order = next(filter(None, (check_order([f.rgb for f in r]) for r in sample.runs)), None)
    findings.append(out_of_order)
    if out_of_order is None:
        neighbours = [follow(first, second) for first, second in sample.neighbours]
        apart = check_overlap(neighbours)
        findings.append(apart or check_speed(neighbours))
        findings += _check_geometry(dataset, sample, are_usable=bad_poses is None and apart is None)
    findings.append(check_registration(sample.frames))
    return [finding for finding in findings if finding is not None]


def _check_files(dataset: Dataset, sample: Sample) -> list[Finding | None]:
    if not isinstance(dataset, RecordedSequence):
        runs = [run for run in sample.runs if run]
        checked = (check_timestamps([f.timestamp for f in run], run[0].index) for run in runs)
        return [next(filter(None, checked), None)]
    names = None
    if dataset.name.startswith(_BY_POSITION):
        names = check_names(
            [Path(frame.colour_name).name for frame in dataset.frames],
            [Path(frame.depth_name).name for frame in dataset.frames],
        )
    return [names, check_timestamps(list(dataset.timestamps))]


def _check_geometry(dataset: Dataset, sample: Sample, *, are_usable: bool) -> list[Finding | None]:
    """Check depth by the poses where there are any, else by what depth cameras can measure."""
    depth_scale = dataset.depth_scale if isinstance(dataset, RecordedSequence) else None
    if are_usable:
        matches = Matches.of(wide_tracks(sample.runs))
        if can_be_checked(matches, dataset.camera):
            return [check_geometry(matches, dataset.camera, depth_scale)]
    return [check_depth_range([frame.depth for frame in sample.frames], depth_scale)]


def wide_tracks(runs: Sequence[Sequence[Frame]]) -> list[Tracks]:
    """Follow corners of a few frames of each run as far as most of them are found again."""
    found = []
    for run in runs:
        for start in range(0, max(len(run) - 1, 1), _GAPS[0]):
            gaps = [gap for gap in _GAPS if start + gap < len(run)]
            for gap in gaps:
                tracks = follow(run[start], run[start + gap])
                if tracks.share >= _ENOUGH_SHARE or gap == gaps[-1]:
                    found.append(tracks)
                    break
    return found
