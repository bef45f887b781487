"""``gsslam report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gsslam.cli.console import CountReport, print_line
from gsslam.cli.status import SUCCESS
from gsslam.device import resolve_device


@dataclass(frozen=True)
class Report:
    """Write one HTML file about a run, or about several side by side.

    Metrics, trajectory against ground truth, error, speed, spheres and memory over time, input and
    rendered images with a slider, and the configuration. The file needs nothing else to be shown,
    and no network.

    Examples of use:
      gsslam report runs/synthetic/room/latest
      gsslam report runs/tum/fr1_xyz/20260101-120000 runs/tum/fr1_xyz/latest --out compared.html
    """

    # Folders that `gsslam run` wrote.
    runs: Annotated[
        Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")
    ]
    # The file to write. Default: report.html in the folder of the run; of several runs, here.
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    # Images of this many frames of each run.
    frames: Annotated[int, arg(metavar="N")] = 24
    # Folder of the dataset, if it moved since.
    path: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Where to render.
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def execute(self) -> int:
        """Write the report and say where it is; return the exit status."""
        device = resolve_device(self.device)
        from gsslam.report.page import ReportOptions, write_report

        out = self.out or (self.runs[0] if len(self.runs) == 1 else Path()) / "report.html"
        with CountReport("rendering") as progress:
            missing = write_report(
                *(self.runs, out, ReportOptions(self.frames, device, self.path)),
                on_frame=progress.update,
            )
        for note in missing:
            print_line(note)
        print_line(f"Report in {out}")
        return SUCCESS
