"""The picture of what a run cost, frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsslam.evaluation.records import FrameRecord
from gsslam.plots import OURS, TRUTH, save

# Frames over which the speed is averaged, at most.
_SPEED_WINDOW = 100


def plot_memory(path: Path, records: Sequence[FrameRecord], budget_mb: float) -> None:
    """Draw budgeted memory and spheres, and frames per second, over the frames.

    The speed is a moving average over the wall time of frames.
    """
    seen = [record for record in records if record.memory_mb is not None]
    frames = np.array([record.index for record in seen])
    figure = Figure(figsize=(10, 6), layout="constrained")
    memory, speed = figure.subplots(2, 1, sharex=True)
    memory.plot(frames, [record.memory_mb for record in seen], color=OURS, label="memory (MB)")
    if budget_mb > 0:
        memory.axhline(budget_mb, color="black", linestyle="--", linewidth=1, label="budget")
    memory.set(ylabel="what the budget counts (MB)", ylim=(0, None))
    spheres = memory.twinx()
    counts = [record.spheres for record in seen]
    spheres.plot(frames, counts, color=TRUTH, linewidth=1, label="spheres")
    spheres.set(ylabel="spheres", ylim=(0, None))
    handles = [*memory.get_lines(), *spheres.get_lines()]
    memory.legend(handles=handles, loc="lower right", fontsize=8)
    milliseconds = np.array([r.loop_ms for r in seen])
    speed.plot(frames, 1000 / np.maximum(_moving_mean(milliseconds), 1e-3), color=OURS)
    speed.set(xlabel="frame", ylabel="frames/s", ylim=(0, None))
    for axes in (memory, speed):
        axes.grid(alpha=0.25)
    save(figure, path)


def _moving_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each value and those around it, fewer at the ends."""
    window = np.ones(min(_SPEED_WINDOW, len(values)))
    sums = np.convolve(values, window, mode="same")
    return sums / np.convolve(np.ones(len(values)), window, mode="same")
