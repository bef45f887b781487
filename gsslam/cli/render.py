"""``gsslam render``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gsslam.cli.console import CountReport, print_line
from gsslam.cli.status import SUCCESS
from gsslam.device import resolve_device
from gsslam.source import parse_resolution


@dataclass(frozen=True)
class Render:
    """Film the map of a run along a path of the camera: an MP4, or a folder of PNG images.

    Paths:
      orbit       around the middle of the run's views, looking at what they show
      trajectory  along the run, without the tremor of the hand
      FILE        through the poses of a file in TUM's format, in the world of trajectory.txt

    Examples of use:
      gsslam render runs/synthetic/room/latest
      gsslam render runs/tum/fr1_xyz/latest --path trajectory --resolution 1280x720
      gsslam render runs/synthetic/room/latest --path my_poses.txt --seconds 10 --out frames
    """

    # Folder that `gsslam run` wrote.
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    # orbit, trajectory, or a file of poses.
    path: Annotated[str, arg(metavar="PATH")] = "orbit"
    # What to write: a file that ends in .mp4, or a folder for PNG images. Default: in RUN/export.
    out: Annotated[Path | None, arg(metavar="FILE|DIR", help_behavior_hint="")] = None
    # Size of the images. Default: that of the run's.
    resolution: Annotated[str | None, arg(metavar="WxH", help_behavior_hint="")] = None
    # Images a second.
    fps: Annotated[float, arg(metavar="N")] = 30.0
    # Length of the film. Default: 8 for an orbit, else that of the path.
    seconds: Annotated[float | None, arg(metavar="S", help_behavior_hint="")] = None
    # Where to render.
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def execute(self) -> int:
        """Render and say where the result is; return the exit status."""
        size = None if self.resolution is None else parse_resolution(self.resolution)
        device = resolve_device(self.device)
        from gsslam.novel_views import NovelViewOptions, render_run

        with CountReport("rendering") as progress:
            target, count = render_run(
                *(self.run, self.path, self.out),
                NovelViewOptions(size, self.fps, self.seconds, device),
                on_frame=progress.update,
            )
        print_line(f"{count:,} images in {target}")
        return SUCCESS
