"""From the outcomes of a suite to its tables and files."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gsslam
from gsslam.bench.job import Outcome
from gsslam.bench.suite import MEAN, Peer, Suite
from gsslam.bench.table import (
    ATE,
    FRAMES,
    HELDOUT_PSNR,
    LOST,
    MAP_SIZE,
    MEMORY,
    PSNR,
    SPEED,
    SPHERES,
    SSIM,
    Metrics,
    Table,
    mean_and_spread,
    table_of_runs,
)
from gsslam.files import atomic_path

# Metrics that peers publish, as in Peer; title; decimals.
_COMPARED = (("ate_rmse_cm", "ATE RMSE, cm", 2), ("psnr_db", "PSNR, all frames, dB", 1))
_OURS = "gsslam"


# What fits a terminal, and what a file has beside it.
_SHORT = (LOST, ATE, *PSNR, SPHERES, MAP_SIZE, SPEED)
_FULL = (FRAMES, LOST, ATE, *PSNR, *HELDOUT_PSNR, SSIM, SPHERES, MAP_SIZE, MEMORY, SPEED)


def tables(suite: Suite, outcomes: Sequence[Outcome], *, is_full: bool) -> list[Table]:
    """Return the suite's own table, one for each metric that peers published, and the problems."""
    found = {name: _metrics(outcomes, name) for name in suite.sequences}
    runs = {f"{name} ({len(runs)})": runs for name, runs in found.items() if runs}
    own = table_of_runs(suite.title, "sequence (runs)", runs, _FULL if is_full else _SHORT)
    beside = [_compared(suite, found, *metric) for metric in _COMPARED]
    problems = tuple((o.name, str(o.seed), o.problem) for o in outcomes if o.problem)
    failed = Table("Runs without results", ("sequence", "seed", "reason"), problems)
    return [table for table in (own, *beside, failed) if table.rows]


def write_results(suite: Suite, outcomes: Sequence[Outcome], about: str, out: Path) -> None:
    """Write results.md and results.json into ``out``; ``about`` says how it was run."""
    parts = [f"# {suite.title}\n\ngsslam {gsslam.__version__}. {about}\n"]
    parts += [
        f"## {table.title}\n\n{table.markdown()}" for table in tables(suite, outcomes, is_full=True)
    ]
    with atomic_path(out / "results.md") as temporary:
        temporary.write_text("\n".join(parts), encoding="utf-8")
    values = {
        "title": suite.title,
        "version": gsslam.__version__,
        "about": about,
        "runs": [_run_values(outcome) for outcome in outcomes],
        "peers": [asdict(peer) for peer in suite.peers],
    }
    with atomic_path(out / "results.json") as temporary:
        temporary.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _compared(
    suite: Suite, found: dict[str, list[Metrics]], key: str, title: str, decimals: int
) -> Table:
    """Return our means and the peers' figures of one metric; no rows where nobody published any."""
    header = ("system", *suite.sequences, MEAN, "source")
    peers = [peer for peer in suite.peers if getattr(peer, key)]
    values = {name: _values(runs, key) for name, runs in found.items()}
    ours = [mean_and_spread(values[name], decimals) for name in suite.sequences]
    means = [statistics.mean(numbers) for numbers in values.values() if numbers]
    complete = len(means) == len(suite.sequences)
    mean = f"{statistics.mean(means):.{decimals}f}" if complete else "-"
    rows = [(_OURS, *ours, mean, "these runs"), *(_peer(peer, suite, key) for peer in peers)]
    return Table(f"{title}, beside others", header, tuple(rows) if peers else ())


def _peer(peer: Peer, suite: Suite, key: str) -> tuple[str, ...]:
    figures: dict[str, float] = getattr(peer, key)
    known = [figures.get(name) for name in suite.sequences]
    mean = figures.get(MEAN)
    if mean is None and None not in known:
        mean = round(statistics.mean(figures.values()), 2)
    cells = ["-" if value is None else f"{value:g}" for value in (*known, mean)]
    return (peer.name, *cells, peer.source)


def _metrics(outcomes: Sequence[Outcome], name: str) -> list[Metrics]:
    return [outcome.metrics for outcome in outcomes if outcome.name == name and not outcome.problem]


def _values(runs: Sequence[Metrics], key: str) -> list[float]:
    return [run[key] for run in runs if run.get(key) is not None]


def _run_values(outcome: Outcome) -> dict[str, Any]:
    return {
        "sequence": outcome.name,
        "seed": outcome.seed,
        "problem": outcome.problem or None,
        "metrics": outcome.metrics,
    }
