"""The camera's path against ground truth, and its error over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsslam.evaluation.records import FrameRecord
from gsslam.evaluation.trajectory import aligned, root_mean_square
from gsslam.report.figure import LOST, OURS, TRUTH, Line, save_png
from gsslam.trajectory import Trajectory

_Positions = NDArray[np.float64]


def plot_trajectory(
    path: Path,
    records: Sequence[FrameRecord],
    trajectory: Trajectory,
    compared: tuple[Trajectory, Trajectory],
) -> None:
    """Draw the path seen from above, and its error over time where there is ground truth.

    ``compared`` holds the estimated and the true poses of the frames that have both.
    """
    figure = Figure(figsize=(13, 5.2), layout="constrained")
    top, over_time = figure.subplots(1, 2, width_ratios=[1, 1.25])
    draw_path(figure, top, trajectory, compared)
    draw_errors(over_time, [Line("", OURS, records)])
    save_png(figure, path)


def draw_path(
    figure: Figure, axes: Axes, trajectory: Trajectory, compared: tuple[Trajectory, Trajectory]
) -> None:
    """Draw the true path and over it the estimated one coloured by its error.

    Without ground truth, the estimated path alone.
    """
    if len(compared[1]) >= 2:
        _draw_compared(figure, axes, *(each.T_world_camera for each in compared))
    elif len(trajectory):
        _draw_lone_path(axes, trajectory.T_world_camera[:, :3, 3])


def _draw_compared(
    figure: Figure, axes: Axes, estimate: NDArray[np.float64], truth: NDArray[np.float64]
) -> None:
    ours = aligned(estimate, truth)[:, :3, 3]
    errors_cm = 100 * np.linalg.norm(ours - truth[:, :3, 3], axis=1)
    a, b = _plane_of(axes, truth[:, :3, 3])
    axes.plot(truth[:, a, 3], truth[:, b, 3], color=TRUTH, linewidth=3.5, label="ground truth")
    points = ours[:, [a, b]]
    segments = np.stack([points[:-1], points[1:]], axis=1)  # (N - 1, 2, 2)
    lines = LineCollection(list(segments), cmap="viridis", linewidth=1.6, label="gsslam, aligned")
    lines.set_array(errors_cm[1:])
    axes.add_collection(lines)
    axes.plot(*points[0], "o", color="black", markersize=5, label="start")
    axes.autoscale_view()
    axes.legend(loc="best", fontsize=8, framealpha=0.8)
    figure.colorbar(lines, ax=axes, label="position error (cm)", shrink=0.85)


def _draw_lone_path(axes: Axes, positions: _Positions) -> None:
    a, b = _plane_of(axes, positions)
    axes.plot(positions[:, a], positions[:, b], color=OURS, linewidth=1.6, label="gsslam")
    axes.plot(positions[0, a], positions[0, b], "o", color="black", markersize=5, label="start")
    axes.legend(loc="best", fontsize=8)


def _plane_of(axes: Axes, positions: _Positions) -> tuple[int, int]:
    """Return the two world axes along which the path (N, 3) extends most, and label ``axes``."""
    a, b = sorted(np.argsort(np.ptp(positions, axis=0))[1:].tolist())
    axes.set(xlabel=f"{'xyz'[a]} (m)", ylabel=f"{'xyz'[b]} (m)")
    axes.set_title(f"Path of the camera, seen along {'xyz'[3 - a - b]}")
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(alpha=0.25)
    return a, b


def draw_errors(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the position error of every frame of every run that has one, and mark lost frames.

    Where no run has ground truth, the colour residual of tracking takes its place.
    """
    compared = [line for line in lines if any(r.position_error_cm is not None for r in line.seen)]
    if compared:
        for line in compared:
            _draw_error(axes, line, filled=len(lines) == 1)
        axes.set(ylabel="position error (cm)", title="Position error of all frames (no scale)")
    else:
        for line in lines:
            _draw_residual(axes, line)
        axes.set(
            ylabel="colour residual (RMS, 0 to 1)",
            title="Tracking residual (there is no ground truth)",
        )
    axes.set(xlabel="time (s)")
    axes.set_xlim(0, max([1e-3, *(s for line in lines for s in line.seconds(line.seen)[-1:])]))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8)


def _draw_error(axes: Axes, line: Line, *, filled: bool) -> None:
    compared = [record for record in line.seen if record.position_error_cm is not None]
    errors = np.array([record.position_error_cm for record in compared])
    seconds = line.seconds(compared)
    rmse = root_mean_square(errors)
    axes.plot(seconds, errors, color=line.colour, linewidth=1.2)
    if filled:
        axes.fill_between(seconds, errors, color=line.colour, alpha=0.12, linewidth=0)
    label = line.named(f"ATE RMSE {rmse:.2f} cm over {len(compared)} frames")
    colour = line.colour if line.label else "black"
    axes.axhline(rmse, color=colour, linestyle="--", linewidth=1, label=label)
    _mark_lost(axes, line, compared)


def _draw_residual(axes: Axes, line: Line) -> None:
    seen = [record for record in line.seen if record.colour_residual is not None]
    residuals = np.array([record.colour_residual for record in seen], dtype=np.float64)
    axes.plot(line.seconds(seen), residuals, color=line.colour, linewidth=1.2, label=line.label)
    _mark_lost(axes, line, seen)


def _mark_lost(axes: Axes, line: Line, records: Sequence[FrameRecord]) -> None:
    lost = [record for record in records if record.status == "lost"]
    if lost:
        label = line.named(f"{len(lost)} lost frames")
        zeros = np.zeros(len(lost))
        axes.plot(line.seconds(lost), zeros, "x", color=LOST, clip_on=False, label=label)
