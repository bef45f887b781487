"""``gsslam export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gsslam.cli.console import CountReport, print_line
from gsslam.cli.status import SUCCESS
from gsslam.device import resolve_device


@dataclass(frozen=True)
class Export:
    """Write the map of a run, or the run itself, in another format.

    Formats:
      ply         spheres, for any Gaussian splat viewer
      compact     the same in a sixth of the bytes, for gsslam and NumPy
      spz         the same in Niantic's compressed format (extra `spz`)
      mesh        triangles with colours: rendered depth fused into a surface (extra `mesh`)
      pointcloud  points with colours and normals: the spheres on surfaces
      colmap      poses, images and points, as COLMAP's text model

    Examples of use:
      gsslam export runs/synthetic/room/latest --format mesh
      gsslam export runs/tum/fr1_xyz/latest --format colmap --views 100 --out desk_colmap
    """

    # Folder that `gsslam run` wrote.
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    # What to write.
    format: Literal["ply", "compact", "spz", "mesh", "pointcloud", "colmap"] = "ply"
    # The file, or for colmap the folder, to write. Default: in RUN/export.
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    # Frames whose poses the map is rendered from (mesh, pointcloud) or that are written (colmap),
    # evenly spaced, at most.
    views: Annotated[int, arg(metavar="N")] = 200
    # Size of a voxel of the mesh, in metres.
    voxel: Annotated[float, arg(metavar="METRES")] = 0.01
    # Depth over which the mesh takes nothing, in metres.
    max_depth: Annotated[float, arg(metavar="METRES")] = 10.0
    # Folder of the dataset, if it moved since (colmap).
    path: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Where to render.
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def execute(self) -> int:
        """Export and say where it is; return the exit status."""
        device = resolve_device(self.device)
        from gsslam.export.formats import ExportOptions, export_run

        with CountReport("rendering") as progress:
            target, what = export_run(
                *(self.run, self.format, self.out),
                ExportOptions(self.views, self.voxel, self.max_depth, device),
                dataset_path=self.path,
                on_view=progress.update,
            )
        print_line(f"{what} in {target}")
        return SUCCESS
