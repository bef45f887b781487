"""``gsslam bench``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import rich.table
from rich.console import Console
from tyro.conf import arg

from gsslam.cli.console import output, print_line
from gsslam.cli.status import INTERRUPTED, PROBLEM, SUCCESS
from gsslam.errors import ConfigError

if TYPE_CHECKING:
    from gsslam.bench.batch import Batch
    from gsslam.bench.job import Job, Outcome
    from gsslam.bench.suite import Suite
    from gsslam.bench.table import Table


@dataclass(frozen=True)
class Bench:
    """Run many sequences with several seeds, and compare with what others published.

    Each run has a process of its own. Finished ones are not run again, so that the command may be
    stopped with Ctrl-C and given once more; other settings get folders of their own.

    Results (in runs/bench/SUITE, or --out):
      results.md    tables: mean ± standard deviation over the seeds; peers with their source
      results.json  the metrics of every run
      SEQUENCE/     the run folders

    Examples of use:
      gsslam bench --suite synthetic
      gsslam bench --suite tum --seeds 5 --device cuda
      gsslam bench --suite real --data ~/data --preset cpu --jobs 2
      gsslam bench --suite my_suite.yaml --ray auto --jobs 16
    """

    # tum, replica, real, synthetic, or a YAML file like theirs.
    suite: Annotated[str, arg(metavar="NAME")]
    # Runs of each sequence, with seeds 0, 1, ...
    seeds: Annotated[int, arg(metavar="N")] = 3
    # Runs at a time. Speed is comparable only for runs that were alone.
    jobs: Annotated[int, arg(metavar="N")] = 1
    # Address of a Ray cluster that does the work (auto: that of this computer; local: one that is
    # started for it). All computers must have gsslam and the sequences at the same place.
    ray: Annotated[str, arg(metavar="ADDRESS")] = ""
    # Folder in which a suite's sequences lie, where it names their folders.
    data: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Folder for the results. Default: runs/bench/SUITE.
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Where to compute.
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # In place of every sequence's preset.
    preset: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None
    # In place of every sequence's size of the images.
    resolution: Annotated[str | None, arg(metavar="WxH", help_behavior_hint="")] = None
    # In place of every sequence's number of frames.
    max_frames: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None

    def execute(self) -> int:
        """Run what is missing, print and write the tables; return the exit status."""
        from gsslam.bench.batch import run_batch
        from gsslam.bench.results import tables, write_results
        from gsslam.device import resolve_device

        if not self.ray:
            resolve_device(self.device)
        suite = self._suite()
        out = (self.out or Path("runs/bench") / Path(self.suite).stem).absolute()
        if self.seeds < 1:
            raise ConfigError(f"--seeds {self.seeds} must be at least 1")
        data = None if self.data is None else self.data.expanduser().absolute()
        jobs = suite.jobs(out, self.seeds, self.device, data)
        batch = run_batch(jobs, self.jobs, _Report(len(jobs)).update, self.ray)
        write_results(suite, batch.outcomes, self._about(jobs), out)
        for table in tables(suite, batch.outcomes, is_full=False):
            output().print(_shown(table))
        print_line(f"Results in {out / 'results.md'}")
        return _status(batch)

    def _suite(self) -> Suite:
        from gsslam.bench.suite import load_suite
        from gsslam.source import parse_resolution

        if self.resolution is not None:
            parse_resolution(self.resolution)
        if self.max_frames is not None and self.max_frames < 1:
            raise ConfigError(f"--max-frames {self.max_frames} must be at least 1")
        named = {
            "preset": self.preset,
            "resolution": self.resolution,
            "max_frames": self.max_frames,
        }
        given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        return load_suite(self.suite).with_settings(given)

    def _about(self, jobs: list[Job]) -> str:
        where = f"Ray at {self.ray}" if self.ray else f"{os.cpu_count()} processors"
        sizes = {
            job.name: "{}x{}".format(*job.source.resolution) if job.source.resolution else "full"
            for job in jobs
        }
        size = ", ".join(f"{name} {size}" for name, size in sizes.items())
        preset = self.preset or "each family's"
        return (
            f"Device {self.device}, {where}, {self.jobs} run(s) at a time, preset {preset}; "
            f"image size: {size}. All frames count; mean ± standard deviation over seeds."
        )


class _Report:
    """Says on stderr how far a batch is."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._done, self._total = 0, total

    def update(self, outcome: Outcome) -> None:
        """Print a line for an outcome."""
        self._done += 1
        metrics = outcome.metrics
        result = outcome.problem or ", ".join(
            f"{name} {metrics[key]:.2f} {unit}"
            for name, key, unit in (
                ("ATE", "ate_rmse_cm", "cm"),
                ("PSNR", "psnr_db", "dB"),
                ("speed", "frames_per_s", "frames/s"),
            )
            if metrics.get(key) is not None
        )
        line = f"{self._done}/{self._total}  {outcome.name}, seed {outcome.seed}: {result}"
        self._console.print(line, markup=False, soft_wrap=True)


def _shown(table: Table) -> rich.table.Table:
    shown = rich.table.Table(title=table.title, title_justify="left")
    for index, title in enumerate(table.header):
        shown.add_column(title, justify="right" if index else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown


def _status(batch: Batch) -> int:
    if batch.interrupted:
        return INTERRUPTED
    return PROBLEM if any(outcome.problem for outcome in batch.outcomes) else SUCCESS
