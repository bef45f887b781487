"""The plots of a report, as SVG with a cursor that follows the slider."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.figure import Figure

from gsslam.finished_run import FinishedRun
from gsslam.report.cost_plot import draw_cost
from gsslam.report.figure import Line, cursor, to_svg
from gsslam.report.trajectory_plot import draw_errors, draw_path


def path_svg(run: FinishedRun, name: str) -> Markup:
    """Return the path of one run against ground truth."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    draw_path(figure, figure.subplots(), run.trajectory, run.compared())
    return Markup(to_svg(figure, name))


def errors_svg(lines: Sequence[Line]) -> Markup:
    """Return the error of all runs over time."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    draw_errors(axes, lines)
    cursor(axes, "seconds")
    return Markup(to_svg(figure, "errors"))


def cost_svg(lines: Sequence[Line], budgets_mb: Sequence[float]) -> Markup:
    """Return memory, spheres and speed of all runs over the frames."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    draw_cost(panels, lines, budgets_mb)
    for axes in panels:
        cursor(axes, "frame")
    return Markup(to_svg(figure, "cost"))
