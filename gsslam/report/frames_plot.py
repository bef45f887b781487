"""Frames of a run: input, render, both depths and the colour error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsslam.evaluation.evaluate import Sample
from gsslam.evaluation.images import unit_image
from gsslam.evaluation.records import FrameRecord
from gsslam.report.figure import save_png

# Colour error at which the error map saturates, colours 0 to 1.
ERROR_RANGE = 0.3
DEPTH_COLOURS, ERROR_COLOURS = "turbo_r", "inferno"
PANEL_TITLES = ("input", "render", "input depth", "rendered depth", "colour error")


def plot_frames(path: Path, samples: Sequence[Sample]) -> None:
    """Draw input, render, both depths and the colour error of each sample, a row each."""
    height, width = samples[0].frame.depth.shape
    figure, grid = _panel_grid(len(samples), height / width)
    depth_scale = depth_range([sample.frame.depth for sample in samples])
    for row, sample in zip(grid, samples, strict=True):
        for axes, image in zip(row, panels(sample, depth_scale), strict=True):
            axes.imshow(image, interpolation="nearest", aspect="auto")
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(caption(sample.record), fontsize=11)
    for axes, title in zip(grid[0], PANEL_TITLES, strict=True):
        axes.set_title(title, fontsize=12)
    _colour_bar(figure, grid[-1][2:4], depth_scale, DEPTH_COLOURS, "depth (m); grey: none")
    error_scale = Normalize(0, ERROR_RANGE)
    _colour_bar(
        figure, grid[-1][4:], error_scale, ERROR_COLOURS, "mean absolute error, colours 0 to 1"
    )
    save_png(figure, path)


def _panel_grid(rows: int, aspect: float) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with ``rows`` of panels of height / width ``aspect``, close together.

    Placed by hand, in inches: matplotlib's own layouts leave wide gaps around images.
    """
    left, right, top, bottom, gap, cell = 0.9, 0.15, 0.4, 0.8, 0.08, 3.0
    columns, cell_height = len(PANEL_TITLES), 3.0 * aspect
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


def panels(sample: Sample, depth_scale: Normalize) -> list[NDArray[Any]]:
    """Return the images (H, W, 3) of ``PANEL_TITLES``, 0 to 1."""
    image = unit_image(sample.frame.rgb)
    rendered = np.clip(sample.view.colour, 0, 1)
    error = np.abs(rendered - image).mean(axis=2)
    return [
        image,
        rendered,
        _coloured_depth(sample.frame.depth, depth_scale),
        _coloured_depth(sample.view.depth, depth_scale),
        colormaps[ERROR_COLOURS](np.clip(error / ERROR_RANGE, 0, 1))[..., :3],
    ]


def depth_range(images: Sequence[NDArray[np.float32]]) -> Normalize:
    """Return one range of depth for all panels: most of what is in the depth ``images``."""
    measured = np.concatenate([np.zeros(0), *(image[image > 0] for image in images)])
    if measured.size == 0:
        return Normalize(0, 1)
    low, high = np.percentile(measured, [1, 99])
    return Normalize(low, max(high, low + 1e-3))


def _coloured_depth(depth: NDArray[np.float32], scale: Normalize) -> NDArray[Any]:
    """Return ``depth`` (H, W) in colours, near warm and far cold, grey where there is none."""
    colours = np.array(colormaps[DEPTH_COLOURS](np.clip(scale(depth), 0, 1))[..., :3])
    colours[depth <= 0] = 0.35
    return colours


def caption(record: FrameRecord, separator: str = "\n") -> str:
    """Return what is said beside a frame."""
    words = [f"frame {record.index}"]
    if record.psnr_db is not None:
        words.append(f"{record.psnr_db:.1f} dB")
    if record.heldout or record.keyframe:
        words.append("held out" if record.heldout else "keyframe")
    if record.status == "lost":
        words.append("lost")
    return separator.join(words)


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
