"""One HTML file that shows runs: self-contained, without any request to a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

import gsslam
from gsslam.errors import ConfigError, DatasetError
from gsslam.files import atomic_path
from gsslam.finished_run import FinishedRun
from gsslam.metrics_table import METRICS_TABLE
from gsslam.rendering import MapRenderer
from gsslam.report.figure import RUN_COLOURS, Line
from gsslam.report.page_images import Slides, make_slides
from gsslam.report.page_plots import cost_svg, errors_svg, path_svg

_TEMPLATE = "page.html.j2"
# More would make a file of hundreds of megabytes.
MOST_FRAMES = 500


@dataclass(frozen=True)
class ReportOptions:
    """What goes into a report."""

    # Images of this many frames of each run.
    frames: int = 24
    device: str = "cpu"
    # Folder of the dataset, if it moved since.
    dataset_path: Path | None = None


@dataclass(frozen=True)
class _Shown:
    """One run on the page."""

    name: str
    colour: str
    about: Sequence[tuple[str, str]]
    path_svg: str
    slides: Slides
    # Why something is missing; empty where nothing is.
    note: str
    configuration: str


def write_report(
    paths: Sequence[Path],
    out: Path,
    options: ReportOptions,
    on_frame: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Write a page about the run folders ``paths`` to ``out``; return what is missing from it.

    ``on_frame`` is told how many frames are drawn, of how many. Raises DatasetError where a run is
    incomplete or damaged, ConfigError where nothing can be shown, OutputError.
    """
    if not paths:
        raise ConfigError("report needs the folder of at least one run, such as runs/ID/latest")
    if not 1 <= options.frames <= MOST_FRAMES:
        raise ConfigError(f"--frames {options.frames} must be from 1 to {MOST_FRAMES}")
    runs = [FinishedRun.read(path, dataset_path=options.dataset_path) for path in paths]
    names = distinct_names(paths)
    total = len(runs) * options.frames
    shown = []
    for i, (name, run) in enumerate(zip(names, runs, strict=True)):

        def progress(done: int, _: int, before: int = i * options.frames) -> None:
            on_frame(before + done, total)

        shown.append(_show(run, name, i, options, progress))
    page = _environment().get_template(_TEMPLATE).render(_context(runs, shown))
    with atomic_path(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return [f"{each.name}: {each.note}" for each in shown if each.note]


def _context(runs: Sequence[FinishedRun], shown: Sequence[_Shown]) -> dict[str, Any]:
    """Return what the template names."""
    lines = [
        Line(each.name if len(runs) > 1 else "", each.colour, run.records)
        for run, each in zip(runs, shown, strict=True)
    ]
    budgets_mb = [_number(run.metrics.get("memory_budget_mb")) or 0 for run in runs]
    return {
        "title": " · ".join(each.name for each in shown),
        "version": gsslam.__version__,
        "runs": shown,
        "table": _metric_rows(runs),
        "errors_svg": errors_svg(lines),
        "cost_svg": cost_svg(lines, budgets_mb),
        "differences": _differences(runs),
    }


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of ``paths``, at least two parts long, that tell them apart.

    The same folder given twice is numbered.
    """
    parts = [path.resolve().parts[1:] for path in paths]
    names: list[str] = []
    for length in range(2, max(map(len, parts)) + 2):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(set(parts)):
            break
    return [
        f"{name} ({names[:i].count(name) + 1})" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]


def _show(
    run: FinishedRun,
    name: str,
    number: int,
    options: ReportOptions,
    on_frame: Callable[[int, int], None],
) -> _Shown:
    renderer = MapRenderer(run.spheres(), run.config.map.low_pass, options.device)
    dataset, notes = None, []
    if run.metrics.get("failure"):
        notes.append(f"the run failed: {run.metrics['failure']}")
    try:
        dataset = run.source.open()
    except (DatasetError, ConfigError) as error:
        # The run's own camera may still be there; without it, this error is raised again.
        run.camera()
        notes.append(f"input images are left out: {error}")
    if run.metrics.get("psnr_db") is None:
        notes.append("its views are not scored: 'gsslam eval' does it")
    elif run.metrics.get("ate_rmse_cm") is not None and not run.folder.ground_truth.exists():
        notes.append("the true path is left out: 'gsslam eval' writes it")
    return _Shown(
        name=name,
        colour=RUN_COLOURS[number % len(RUN_COLOURS)],
        about=_about(run),
        path_svg=path_svg(run, f"path{number}"),
        slides=make_slides(run, dataset, renderer, options.frames, on_frame),
        note="; ".join(notes),
        configuration=run.folder.config.read_text(encoding="utf-8"),
    )


def _about(run: FinishedRun) -> list[tuple[str, str]]:
    """Return what a reader should know of a run besides its numbers."""
    values = run.metrics
    size = f"{values.get('width', '?')}×{values.get('height', '?')}"
    return [
        ("dataset", run.source.dataset),
        ("images", size),
        ("device", str(run.values.get("device", "?"))),
        ("gsslam", str(run.values.get("version", "?"))),
        ("folder", str(run.folder.path)),
    ]


def _metric_rows(runs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Return the rows of the table: label, unit and one text a run; sections begin with a rule."""
    rows = []
    for section in METRICS_TABLE:
        for i, row in enumerate(section):
            values = [_number(run.metrics.get(row.name)) for run in runs]
            rows.append(
                {
                    "label": row.label,
                    "unit": row.unit,
                    "values": [row.formatted(value) for value in values],
                    "headline": row.is_headline,
                    "begins": i == 0,
                }
            )
    return rows


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _differences(runs: Sequence[FinishedRun]) -> list[tuple[str, list[str]]]:
    """Return the settings in which the runs differ, with the value of each."""
    flat = [_flat(yaml.safe_load(run.folder.config.read_text(encoding="utf-8"))) for run in runs]
    keys = sorted({key for each in flat for key in each})
    rows = [(key, [each.get(key, "-") for each in flat]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as dotted names with the text of their values."""
    result: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            result |= _flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = str(value)
    return result


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("gsslam.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
