"""The pictures of a run. Figures are drawn without pyplot, so no global state is touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsslam.evaluation.evaluate import Evaluation, Sample
from gsslam.evaluation.images import unit_image
from gsslam.evaluation.records import FrameRecord
from gsslam.evaluation.trajectory import aligned, root_mean_square
from gsslam.files import atomic_path
from gsslam.trajectory import Trajectory

TRUTH, OURS, _LOST = "#9aa0a6", "#1f6feb", "#d1242f"
# Colour error at which the error map saturates, colours 0 to 1.
_ERROR_RANGE = 0.3
_PANEL_TITLES = ("input", "render", "input depth", "rendered depth", "colour error")
_DOTS_PER_INCH = 100


def plot_trajectory(path: Path, evaluation: Evaluation, trajectory: Trajectory) -> None:
    """Draw the path seen from above, and its error over time where there is ground truth."""
    figure = Figure(figsize=(13, 5.2), layout="constrained")
    top, over_time = figure.subplots(1, 2, width_ratios=[1, 1.25])
    if len(evaluation.truth) >= 2:
        _draw_paths(figure, top, evaluation)
        _draw_errors(over_time, evaluation.records, evaluation.truth.timestamps)
    else:
        _draw_lone_path(top, trajectory.T_world_camera[:, :3, 3])
        _draw_residuals(over_time, evaluation.records)
    save(figure, path)


def _draw_paths(figure: Figure, axes: Axes, evaluation: Evaluation) -> None:
    """Draw the true path, and over it the estimated one coloured by its error."""
    truth = evaluation.truth.T_world_camera
    ours = aligned(evaluation.estimate.T_world_camera, truth)[:, :3, 3]
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


def _draw_lone_path(axes: Axes, positions: NDArray[np.float64]) -> None:
    a, b = _plane_of(axes, positions)
    axes.plot(positions[:, a], positions[:, b], color=OURS, linewidth=1.6, label="gsslam")
    axes.plot(positions[0, a], positions[0, b], "o", color="black", markersize=5, label="start")
    axes.legend(loc="best", fontsize=8)


def _plane_of(axes: Axes, positions: NDArray[np.float64]) -> tuple[int, int]:
    """Return the two world axes along which the path (N, 3) extends most, and label ``axes``."""
    a, b = sorted(np.argsort(np.ptp(positions, axis=0))[1:].tolist())
    axes.set(xlabel=f"{'xyz'[a]} (m)", ylabel=f"{'xyz'[b]} (m)")
    axes.set_title(f"Path of the camera, seen along {'xyz'[3 - a - b]}")
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(alpha=0.25)
    return a, b


def _draw_errors(
    axes: Axes, records: Sequence[FrameRecord], timestamps: NDArray[np.float64]
) -> None:
    """Draw the position error of every frame that has one, and mark lost frames."""
    compared = [record for record in records if record.position_error_cm is not None]
    errors = np.array([record.position_error_cm for record in compared])
    seconds = timestamps - timestamps[0]
    rmse = root_mean_square(errors)
    axes.plot(seconds, errors, color=OURS, linewidth=1.2)
    axes.fill_between(seconds, errors, color=OURS, alpha=0.12, linewidth=0)
    axes.axhline(rmse, color="black", linestyle="--", linewidth=1, label=f"RMSE {rmse:.2f} cm")
    _mark_lost(axes, compared, seconds)
    axes.set(
        xlabel="time (s)",
        ylabel="position error (cm)",
        title=f"ATE RMSE {rmse:.2f} cm over all {len(compared)} frames (no scale)",
    )
    _finish_over_time(axes, seconds)


def _draw_residuals(axes: Axes, records: Sequence[FrameRecord]) -> None:
    """Draw the colour residual of every frame: the substitute where no ground truth exists."""
    seen = [record for record in records if record.colour_residual is not None]
    times = np.array([record.timestamp for record in seen], dtype=np.float64)
    residuals = np.array([record.colour_residual for record in seen], dtype=np.float64)
    seconds = times - times[0]
    axes.plot(seconds, residuals, color=OURS, linewidth=1.2)
    _mark_lost(axes, seen, seconds)
    axes.set(
        xlabel="time (s)",
        ylabel="colour residual (RMS, 0 to 1)",
        title="Tracking residual (this dataset has no ground truth)",
    )
    _finish_over_time(axes, seconds)


def _mark_lost(axes: Axes, records: Sequence[FrameRecord], seconds: NDArray[np.float64]) -> None:
    lost = [time for time, record in zip(seconds, records, strict=True) if record.status == "lost"]
    if lost:
        axes.plot(
            lost,
            np.zeros(len(lost)),
            "x",
            color=_LOST,
            clip_on=False,
            label=f"{len(lost)} lost frames",
        )


def _finish_over_time(axes: Axes, seconds: NDArray[np.float64]) -> None:
    if seconds[-1] > seconds[0]:
        axes.set_xlim(seconds[0], seconds[-1])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8)


def plot_frames(path: Path, samples: Sequence[Sample]) -> None:
    """Draw input, render, both depths and the colour error of each sample, a row each."""
    height, width = samples[0].frame.depth.shape
    figure, grid = _panel_grid(len(samples), height / width)
    depth_scale = _depth_scale(samples)
    for row, sample in zip(grid, samples, strict=True):
        for axes, image in zip(row, _panels(sample, depth_scale), strict=True):
            axes.imshow(image, interpolation="nearest", aspect="auto")
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(_caption(sample.record), fontsize=11)
    for axes, title in zip(grid[0], _PANEL_TITLES, strict=True):
        axes.set_title(title, fontsize=12)
    _colour_bar(figure, grid[-1][2:4], depth_scale, "turbo_r", "depth (m); grey: none")
    error_scale = Normalize(0, _ERROR_RANGE)
    _colour_bar(figure, grid[-1][4:], error_scale, "inferno", "mean absolute error, colours 0 to 1")
    save(figure, path)


def _panel_grid(rows: int, aspect: float) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with ``rows`` of panels of height / width ``aspect``, close together.

    Placed by hand, in inches: matplotlib's own layouts leave wide gaps around images.
    """
    left, right, top, bottom, gap, cell = 0.9, 0.15, 0.4, 0.8, 0.08, 3.0
    columns, cell_height = len(_PANEL_TITLES), 3.0 * aspect
    width = left + columns * cell + (columns - 1) * gap + right
    height = top + rows * cell_height + (rows - 1) * gap + bottom
    figure = Figure(figsize=(width, height))
    grid = [
        [
            figure.add_axes(
                (
                    (left + column * (cell + gap)) / width,
                    1 - (top + row * (cell_height + gap) + cell_height) / height,
                    cell / width,
                    cell_height / height,
                )
            )
            for column in range(columns)
        ]
        for row in range(rows)
    ]
    return figure, grid


def _panels(sample: Sample, depth_scale: Normalize) -> list[NDArray[Any]]:
    """Return the images of one row, ready to show."""
    image = unit_image(sample.frame.rgb)
    rendered = np.clip(sample.view.colour, 0, 1)
    error = np.abs(rendered - image).mean(axis=2)
    return [
        image,
        rendered,
        _coloured_depth(sample.frame.depth, depth_scale),
        _coloured_depth(sample.view.depth, depth_scale),
        colormaps["inferno"](np.clip(error / _ERROR_RANGE, 0, 1))[..., :3],
    ]


def _depth_scale(samples: Sequence[Sample]) -> Normalize:
    """Return one range of depth for all panels: most of what was measured."""
    measured = np.concatenate([s.frame.depth[s.frame.depth > 0] for s in samples])
    if measured.size == 0:
        return Normalize(0, 1)
    low, high = np.percentile(measured, [1, 99])
    return Normalize(low, max(high, low + 1e-3))


def _coloured_depth(depth: NDArray[np.float32], scale: Normalize) -> NDArray[Any]:
    """Return ``depth`` (H, W) in colours, near warm and far cold, grey where there is none."""
    colours = np.array(colormaps["turbo_r"](np.clip(scale(depth), 0, 1))[..., :3])
    colours[depth <= 0] = 0.35
    return colours


def _caption(record: FrameRecord) -> str:
    psnr = "" if record.psnr_db is None else f"\n{record.psnr_db:.1f} dB"
    note = "\nheld out" if record.heldout else "\nkeyframe" if record.keyframe else ""
    lost = "\nlost" if record.status == "lost" else ""
    return f"frame {record.index}{psnr}{note}{lost}"


def _colour_bar(
    figure: Figure, above: list[Axes], scale: Normalize, colours: str, label: str
) -> None:
    """Draw the colour bar of the panels ``above`` under the last row of them."""
    left, right = above[0].get_position(), above[-1].get_position()
    inch = 1 / figure.get_figheight()
    margin = 0.1 * (right.x1 - left.x0)
    axes = figure.add_axes(
        (left.x0 + margin, left.y0 - 0.28 * inch, right.x1 - left.x0 - 2 * margin, 0.12 * inch)
    )
    figure.colorbar(ScalarMappable(scale, colours), cax=axes, orientation="horizontal", label=label)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, without pyplot."""
    FigureCanvasAgg(figure)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=_DOTS_PER_INCH)
