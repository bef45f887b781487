"""The formats that a run can be exported to, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gsslam.errors import ConfigError
from gsslam.export.colmap import write_colmap
from gsslam.export.compact import write_compact
from gsslam.export.mesh import require_open3d, write_mesh
from gsslam.export.ply import write_ply
from gsslam.export.pointcloud import write_point_cloud
from gsslam.export.spz import write_spz
from gsslam.export.surfaces import OnView, SurfaceView, surface_views
from gsslam.finished_run import FinishedRun
from gsslam.rendering import MapRenderer
from gsslam.results import SphereState


@dataclass(frozen=True)
class ExportOptions:
    """What some of the formats want to know."""

    # Frames of the run that are rendered or written, at most.
    views: int = 200
    voxel_m: float = 0.01
    max_depth_m: float = 10.0
    device: str = "cpu"


# Writes a run to a path and returns what was written, in words.
_Write = Callable[[FinishedRun, Path, ExportOptions, OnView], str]


@dataclass(frozen=True)
class _Format:
    # Below the folder of the run.
    default_name: str
    write: _Write


def export_run(
    path: Path,
    format_name: str,
    out: Path | None = None,
    options: ExportOptions | None = None,
    *,
    dataset_path: Path | None = None,
    on_view: OnView = lambda done, total: None,
) -> tuple[Path, str]:
    """Export the run folder ``path``; return where it lies and what it is, in words.

    Raises DatasetError where the run has no usable map (or, for COLMAP, no dataset), ConfigError
    for an option or a library that is missing, OutputError.
    """
    options = options or ExportOptions()
    if format_name not in FORMATS:
        raise ConfigError(f"no format {format_name!r}; there are {', '.join(FORMATS)}")
    if options.views < 1:
        raise ConfigError(f"--views {options.views} must be at least 1")
    run = FinishedRun.read(path, dataset_path=dataset_path)
    chosen = FORMATS[format_name]
    target = out or run.folder.exports / chosen.default_name
    return target, chosen.write(run, target, options, on_view)


def _spheres(write: Callable[[SphereState, Path], None]) -> _Write:
    """Return the writer of a format that holds the spheres as they are."""

    def write_run(run: FinishedRun, out: Path, options: ExportOptions, on_view: OnView) -> str:
        state = run.spheres()
        write(state, out)
        return f"{len(state):,} spheres"

    return write_run


def _mesh(run: FinishedRun, out: Path, options: ExportOptions, on_view: OnView) -> str:
    require_open3d()
    views = _views(run, options, on_view)
    count = write_mesh(out, views, run.camera(), options.voxel_m, options.max_depth_m)
    return f"{count:,} triangles"


def _point_cloud(run: FinishedRun, out: Path, options: ExportOptions, on_view: OnView) -> str:
    views = _views(run, options, on_view)
    return f"{write_point_cloud(out, run.spheres(), views, run.camera()):,} points"


def _colmap(run: FinishedRun, out: Path, options: ExportOptions, on_view: OnView) -> str:
    state, dataset = run.spheres(), run.source.open()
    count = write_colmap(out, state, dataset, run.tracked_views(options.views), on_view)
    return f"{count:,} images and {len(state):,} points"


def _views(run: FinishedRun, options: ExportOptions, on_view: OnView) -> Iterator[SurfaceView]:
    poses = [pose for _, pose in run.tracked_views(options.views)]
    renderer = MapRenderer(run.spheres(), run.config.map.low_pass, options.device)
    return surface_views(renderer, run.camera(), poses, on_view)


FORMATS = {
    "ply": _Format("map.ply", _spheres(write_ply)),
    "compact": _Format("map.npz", _spheres(write_compact)),
    "spz": _Format("map.spz", _spheres(write_spz)),
    "mesh": _Format("mesh.ply", _mesh),
    "pointcloud": _Format("points.ply", _point_cloud),
    "colmap": _Format("colmap", _colmap),
}
