"""Plot what scripts/bench_rasterizer.py --json measured: times of the sides over the spheres.

Run: python -m scripts.plot_bench --results results.json --out docs/images/bench_rasterizer.png
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import tyro

mpl.use("Agg")

OPERATIONS = ("forward", "forward+backward", "mapping step", "tracking step")


@dataclass(frozen=True)
class Options:
    """What is plotted, and where to."""

    results: Path
    out: Path
    size: str = "640x480"


def plot(rows: list[dict[str, Any]], options: Options) -> None:
    """Write one panel for each operation."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(OPERATIONS), figsize=(13, 3.2), layout="constrained")
    for panel, operation in zip(panels, OPERATIONS, strict=True):
        chosen = [r for r in rows if r["size"] == options.size and r["operation"] == operation]
        spheres = [row["spheres"] for row in chosen]
        colours = {"cpu": "tab:green", "gsplat": "tab:orange", "ours": "tab:blue"}
        for side, colour in colours.items():
            times = [row[side]["median"] for row in chosen if side in row]
            if len(times) != len(spheres):
                continue
            panel.plot(spheres, times, "o-", color=colour, label=side)
        panel.set(title=operation, xscale="log", yscale="log", xlabel="spheres")
        panel.grid(which="both", alpha=0.3)
    panels[0].set_ylabel(f"milliseconds, {options.size}")
    panels[0].legend()
    figure.savefig(options.out, dpi=90)


def main() -> None:
    """Read the results and plot them."""
    options = tyro.cli(Options, description=__doc__)
    plot(json.loads(options.results.read_text()), options)


if __name__ == "__main__":
    main()
