"""What a run cost, frame by frame: memory, spheres and speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsslam.evaluation.records import FrameRecord
from gsslam.report.figure import OURS, Line, save_png

# Frames over which the speed is averaged, at most.
_SPEED_WINDOW = 100


def plot_cost(path: Path, records: Sequence[FrameRecord], budget_mb: float) -> None:
    """Draw budgeted memory, spheres, and frames per second, over the frames."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    draw_cost(figure.subplots(3, 1, sharex=True), [Line("", OURS, records)], [budget_mb])
    save_png(figure, path)


def draw_cost(axes: Sequence[Axes], lines: Sequence[Line], budgets_mb: Sequence[float]) -> None:
    """Draw memory, spheres and speed into the three ``axes``, which share x.

    ``budgets_mb`` has the memory budget of each line, 0 for none. The speed is a moving average
    over the wall time of frames.
    """
    memory, spheres, speed = axes
    for line, budget_mb in zip(lines, budgets_mb, strict=True):
        seen = [record for record in line.seen if record.memory_mb is not None]
        frames = np.array([record.index for record in seen])
        style: dict[str, Any] = {"color": line.colour, "linewidth": 1.3}
        used = np.array([record.memory_mb for record in seen], dtype=np.float64)
        memory.plot(frames, used, label=line.label, **style)
        if budget_mb > 0:
            label = line.named(f"budget {budget_mb:g} MB")
            memory.axhline(budget_mb, linestyle="--", label=label, color=line.colour, linewidth=1)
        spheres.plot(frames, [record.spheres for record in seen], label=line.label, **style)
        loop_ms = np.array([record.loop_ms for record in seen])
        if seen:
            speed.plot(frames, 1000 / np.maximum(_moving_mean(loop_ms), 1e-3), **style)
    memory.set(ylabel="what the budget counts (MB)")
    spheres.set(ylabel="spheres")
    speed.set(xlabel="frame", ylabel="frames/s")
    last = max([1, *(record.index for line in lines for record in line.records[-1:])])
    for each in axes:
        each.set(xlim=(0, last), ylim=(0, None))
        each.grid(alpha=0.25)
        if each.get_legend_handles_labels()[0]:
            each.legend(loc="lower right", fontsize=8)


def _moving_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each value and those around it, fewer at the ends."""
    window = np.ones(min(_SPEED_WINDOW, len(values)))
    sums = np.convolve(values, window, mode="same")
    return sums / np.convolve(np.ones(len(values)), window, mode="same")
