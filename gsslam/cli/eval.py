"""``gsslam eval``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gsslam.cli.console import ProgressReport, print_result
from gsslam.cli.status import INTERRUPTED, SUCCESS
from gsslam.device import resolve_device


@dataclass(frozen=True)
class Eval:
    """Compute the metrics of a run again, from its folder and the dataset it names.

    Compares trajectory.txt with ground truth and renders map.ply at every pose.

    Replaces metrics.json, frames.jsonl and plots; times and memory stay those of the run.

    Examples of use:
      gsslam eval runs/synthetic/room/latest
      gsslam eval results/desk --path /mnt/data/rgbd_dataset_freiburg1_desk
    """

    # Folder that `gsslam run` wrote.
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    # Folder of the dataset, if it moved since.
    path: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Where to render.
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def execute(self) -> int:
        """Evaluate and print the table; return the exit status."""
        device = resolve_device(self.device)
        from gsslam.reevaluate import evaluate_run

        with ProgressReport() as progress:
            result = evaluate_run(
                self.run, dataset_path=self.path, device=device, on_progress=progress.update
            )
        print_result(result)
        return INTERRUPTED if result.interrupted else SUCCESS
