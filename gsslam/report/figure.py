"""Figures without pyplot, so that no global state is touched: as PNG files and as SVG text."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsslam.evaluation.records import FrameRecord
from gsslam.files import atomic_path

TRUTH, OURS, LOST = "#9aa0a6", "#1f6feb", "#d1242f"
# Of several runs in one plot.
RUN_COLOURS = (OURS, "#bf3989", "#1a7f37", "#bc4c00", "#8250df", "#0f766e", "#953800", "#57606a")
_DOTS_PER_INCH = 100


@dataclass(frozen=True)
class Line:
    """A run as one line of a plot over its frames."""

    # Empty where it is the only one.
    label: str
    colour: str
    # All frames of the run in order, missing ones too.
    records: Sequence[FrameRecord]

    @property
    def seen(self) -> list[FrameRecord]:
        """The frames that went through tracking."""
        return [record for record in self.records if record.seen]

    def seconds(self, records: Sequence[FrameRecord]) -> NDArray[np.float64]:
        """Return the times of ``records`` since the first frame that was seen."""
        times = [record.timestamp for record in (*self.seen[:1], *records)]
        stamps: NDArray[np.float64] = np.array(times, dtype=np.float64)
        seconds: NDArray[np.float64] = stamps[1:] - stamps[:1]
        return seconds

    def named(self, text: str) -> str:
        """Return ``text`` with the run's name in front, if it has one."""
        return f"{self.label}: {text}" if self.label else text


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure; raises OutputError."""
    FigureCanvasAgg(figure)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=_DOTS_PER_INCH)


def cursor(axes: Axes, kind: str) -> None:
    """Add a line to ``axes`` that a page can move along x, which counts in ``kind``.

    ``kind`` is "seconds" or "frame". It stands at the left end.
    """
    line = axes.axvline(axes.get_xlim()[0], color="black", linewidth=0.8, alpha=0.55)
    line.set_gid(f"cursor-{kind}")


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an ``<svg>`` element whose ids all begin with ``name``.

    Each ``cursor`` gets attributes that say where x = 0 lies and how long a unit is, in the
    picture's own coordinates: data-origin and data-scale.
    """
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    return _with_scales(text, figure, name)


def _with_scales(text: str, figure: Figure, name: str) -> str:
    """Return the SVG ``text`` with the axes' scales at its cursors, which come in axes' order."""
    points = 72 / figure.dpi
    marker = re.compile(rf'<g id="{name}-cursor-(\w+)"')
    scales = iter(
        [
            axes.transData.transform([(0, 0), (1, 0), (axes.get_xlim()[0], 0)])[:, 0] * points
            for axes in figure.axes
            if any(str(line.get_gid()).startswith("cursor-") for line in axes.get_lines())
        ]
    )

    def described(match: re.Match[str]) -> str:
        zero, one, start = next(scales)
        numbers = f'data-offset="{zero - start:.3f}" data-scale="{one - zero:.6f}"'
        return f'<g class="cursor" data-kind="{match[1]}" {numbers}'

    return marker.sub(described, text)
