"""``gsslam doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from tyro.conf import Positional, arg

from gsslam.cli.console import output, print_line
from gsslam.cli.status import PROBLEM, SUCCESS
from gsslam.errors import ConfigError

if TYPE_CHECKING:
    from gsslam.diagnosis.fact import Fact
    from gsslam.diagnosis.finding import Finding


@dataclass(frozen=True)
class Doctor:
    """Find out what is wrong: with this computer, with a dataset, or in a run that failed.

    Without arguments: Python, torch, GPU, native module, threads and disk, and a short self-test
    that renders, maps and tracks, compared with the specification.

    Exit status 0 where all is well, 1 where something is wrong.

    Examples of use:
      gsslam doctor
      gsslam doctor --dataset folder --path ~/my_scan
      gsslam doctor --dataset ~/recordings/kitchen.bag
      gsslam doctor runs/synthetic/room/latest
    """

    # Folder of a run that failed: shows its last native operations.
    run: Annotated[Positional[Path | None], arg(metavar="[RUN]", help_behavior_hint="")] = None
    # Dataset whose frames are looked at: a name or a format from `gsslam datasets list`, or the
    # path of a recording.
    dataset: Annotated[str | None, arg(metavar="ID", help_behavior_hint="")] = None
    # File or folder of the dataset, if it was not downloaded by gsslam.
    path: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Folder below which datasets lie, to find the dataset in.
    data_root: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None

    def execute(self) -> int:
        """Print what was found; return the exit status."""
        if self.run is not None and (self.dataset or self.path):
            raise ConfigError("doctor looks at a run or at a dataset: name one of the two")
        if self.run is not None:
            return _show_flight(self.run)
        if self.dataset is not None:
            return _examine_dataset(self.dataset, self.path, self.data_root)
        if self.path is not None or self.data_root is not None:
            raise ConfigError("--path needs --dataset; for a folder of your own: --dataset folder")
        return _examine_machine()


def _examine_machine() -> int:
    import torch

    from gsslam.diagnosis.machine import machine_facts
    from gsslam.diagnosis.selftest import self_test
    from gsslam.native import cuda_problem

    # Torch's idle threads spin, which takes the processors from the native pool.
    torch.set_num_threads(1)
    devices = ["cpu"] if cuda_problem(0) else ["cpu", "cuda"]
    facts = machine_facts(Path.cwd())
    for device in devices:
        facts += self_test(device)
    output().print(facts_table(facts))
    problems = [fact for fact in facts if fact.problem]
    for fact in problems:
        print_line(f"{fact.label}: {fact.problem}")
    if not problems:
        print_line("All is well.")
    return PROBLEM if problems else SUCCESS


def facts_table(facts: Sequence[Fact]) -> Table:
    """Return one line a fact."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for fact in facts:
        table.add_row("[red]bad[/]" if fact.problem else "[green]ok[/]", fact.label, fact.value)
    return table


def _examine_dataset(name: str, path: Path | None, data_root: Path | None) -> int:
    from gsslam.datasets.registry import resolve
    from gsslam.diagnosis.dataset import diagnose

    findings = diagnose(*resolve(name, path, data_root))
    output().print(findings_table(findings)) if findings else print_line("Nothing is wrong.")
    return PROBLEM if any(finding.is_problem for finding in findings) else SUCCESS


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return what was found, and what to do about it."""
    table = Table(show_lines=True)
    table.add_column("check", no_wrap=True)
    table.add_column("what is wrong", overflow="fold", ratio=3)
    table.add_column("what to do", overflow="fold", ratio=2)
    for finding in findings:
        style = "bold" if finding.is_problem else "dim"
        table.add_row(finding.check, finding.what, finding.fix, style=style)
    return table


def _show_flight(folder: Path) -> int:
    from gsslam.recorder import read_flight
    from gsslam.run_folder import RunFolder

    run = RunFolder(folder)
    metrics = run.read_metrics() if run.metrics.exists() else {}
    if metrics.get("failure"):
        print_line(f"The run stopped: {metrics['failure']}")
    if not run.flight.exists():
        # Also where this is the folder of no run at all.
        _, about = run.read_config()
        print_line(f"The run on {about.get('dataset')} did not fail: there is no {run.flight.name}")
        return SUCCESS
    entries = read_flight(run.flight)
    output().print(flight_table(entries))
    print_line(f"{len(entries)} native operations, the last one at the bottom; {run.flight}")
    return PROBLEM


def flight_table(entries: Sequence[dict[str, Any]]) -> Table:
    """Return one line a native operation; times are seconds before the last one started."""
    table = Table(box=None, pad_edge=False)
    for name in ("time", "thread", "frame", "map", "operation", "on", "ms"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("time", "ms") else "left")
    table.add_column("arguments", overflow="fold")
    last = entries[-1]["started_unix_s"] if entries else 0.0
    for entry in entries:
        duration = entry["duration_ms"]
        place = entry["device"] + ("" if entry["stream"] is None else f"/{entry['stream']:x}")
        table.add_row(
            f"{entry['started_unix_s'] - last:.4f}",
            entry["thread"],
            _text(entry["step"]),
            _text(entry["map_version"]),
            entry["operation"],
            place,
            "runs" if duration is None else f"{duration:.3f}",
            entry["error"] or ", ".join(_argument(*item) for item in entry["arguments"].items()),
            style="red" if entry["error"] else None,
        )
    return table


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _argument(name: str, value: Any) -> str:
    if isinstance(value, dict):
        dtype = "" if value["dtype"] == "float32" else f" {value['dtype']}"
        return f"{name} {'x'.join(map(str, value['shape']))}{dtype}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
