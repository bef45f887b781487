"""Speed against accuracy: run a list of settings over a sequence; write a table and a plot.

Run: python -m scripts.frontier --path .../tum_fr1_xyz --out runs/frontier --plot frontier.png

Every frame counts, and the clock runs while images are read. A run that is in ``out`` already is
not repeated, so that the command may be stopped and started again; delete ``out`` when the code has
changed. Repetitions must give the same trajectory to the byte, else the command fails.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import tyro
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from gsslam.bench.job import plain_name
from gsslam.bench.suite import Sequence
from gsslam.bench.table import ATE, LOST, PSNR, SPEED, SPHERES, Column, table_of_runs
from gsslam.config import SlamConfig
from gsslam.errors import ConfigError, OutputError
from gsslam.files import atomic_path
from gsslam.presets import config_hash
from gsslam.report import Progress
from gsslam.run import RunOptions, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.source import Source

_SETTINGS = Path(__file__).with_suffix(".yaml")
_POINT = "point.json"


@dataclass(frozen=True)
class Options:
    """What is run, and where the results go."""

    # Folder of the sequence.
    path: Path
    # Its name.
    dataset: str = "tum/fr1_xyz"
    # Size of the images.
    resolution: str = "320x240"
    # Frames; all by default.
    max_frames: int | None = None
    # Where to compute.
    device: str = "cpu"
    # YAML: a name for each setting; its preset and the values that differ from that.
    settings: Path = _SETTINGS
    # Only these of the settings; default: all.
    only: tuple[str, ...] = ()
    # Runs of each setting, one of all before the second of the first; times are their medians.
    repeats: int = 1
    # Folder of the runs; those that are in it already are not repeated.
    out: Path = field(default_factory=lambda: Path("runs/frontier"))
    # Picture to draw.
    plot: Path | None = None
    # File for the table, which is printed in any case.
    table: Path | None = None


@dataclass(frozen=True)
class Point:
    """What one setting costs and gives."""

    name: str
    frames: int
    lost_frames: int
    frames_per_s: float
    # Processor time of all threads a frame, reading included: it depends less on other work.
    processor_ms: float
    ate_rmse_cm: float
    psnr_db: float
    psnr_exposure_db: float
    spheres: int
    config_hash: str
    trajectory_hash: str


def load_settings(options: Options) -> dict[str, Sequence]:
    """Return the settings that the options' YAML file names; raises ConfigError for a wrong one."""
    path, only = options.settings, options.only
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    unknown = [name for name in only if name not in values]
    if unknown:
        raise ConfigError(f"{path} has no setting {unknown[0]!r}: choose from {', '.join(values)}")
    on: dict[str, Any] = {
        "dataset": options.dataset,
        "resolution": options.resolution,
        "max_frames": options.max_frames,
    }
    chosen = {name: {**on, **values[name]} for name in values if not only or name in only}
    try:
        return TypeAdapter(dict[str, Sequence]).validate_python(chosen)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {where}: {first['msg']}") from error


def run_setting(
    name: str, config: SlamConfig, source: Source, out: Path, device: str = "cpu"
) -> Point:
    """Run one setting into the folder ``out``, or read what an earlier run left there."""
    if (out / _POINT).exists():
        point = Point(**json.loads((out / _POINT).read_text(encoding="utf-8")))
        if point.config_hash != config_hash(config):
            raise OutputError(f"{out} holds another configuration: delete it")
        return point
    dataset = source.open()
    started = ended = time.process_time()

    def watch(progress: Progress) -> None:
        nonlocal ended
        if progress.step == "tracking":
            ended = time.process_time()

    options = RunOptions(device)
    run_dataset(dataset, config, out, options=options, source=source, on_progress=watch)
    folder = RunFolder(out)
    point = _point(name, config, folder, ended - started)
    with atomic_path(out / _POINT) as temporary:
        temporary.write_text(json.dumps(asdict(point), indent=2), encoding="utf-8")
    return point


def _point(name: str, config: SlamConfig, folder: RunFolder, processor_s: float) -> Point:
    metrics = folder.read_metrics()
    wanted = Point.__dataclass_fields__
    return Point(
        **{key: value for key, value in metrics.items() if key in wanted and key != "config_hash"},
        name=name,
        processor_ms=1e3 * processor_s / metrics["frames"],
        config_hash=config_hash(config),
        trajectory_hash=hashlib.sha256(folder.trajectory.read_bytes()).hexdigest(),
    )


def combined(points: list[Point]) -> Point:
    """Return one setting's repetitions as one point, times by their median.

    Raises OutputError where they did not give the same trajectory.
    """
    if len({point.trajectory_hash for point in points}) > 1:
        raise OutputError(f"{points[0].name}: repetitions gave different trajectories")
    times = {
        key: median(getattr(point, key) for point in points)
        for key in ("frames_per_s", "processor_ms")
    }
    return Point(**{**asdict(points[0]), **times})


def run_settings(settings: Mapping[str, Sequence], options: Options) -> list[Point]:
    """Run all settings, ``repeats`` times in turn."""
    points: dict[str, list[Point]] = {name: [] for name in settings}
    for repeat in range(options.repeats):
        for name, setting in settings.items():
            out = options.out / plain_name(name) / str(repeat)
            source = replace(setting.source(None, seed=0), path=options.path)
            config = setting.configuration(seed=0)
            points[name].append(run_setting(name, config, source, out, options.device))
    return [combined(runs) for runs in points.values()]


def markdown_table(points: Iterable[Point]) -> str:
    """Return the points as a table, the fastest last."""
    slowest_first = sorted(points, key=lambda point: point.frames_per_s)
    runs = {point.name: [asdict(point)] for point in slowest_first}
    processor = Column.of("processor, ms a frame", "processor_ms", 0)
    columns = (SPEED, processor, ATE, *PSNR, LOST, SPHERES)
    return table_of_runs("", "setting", runs, columns).markdown()


def plot_frontier(points: list[Point], path: Path, title: str) -> None:
    """Draw ATE and PSNR over frames/s, each point with its name."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    fitted = [point.psnr_exposure_db for point in points]
    values = ([point.ate_rmse_cm for point in points], fitted)
    labels = ("ATE RMSE (cm), lower is better", "PSNR (dB), exposure-fitted, higher is better")
    for panel, heights, label in zip(axes, values, labels, strict=True):
        speeds = [point.frames_per_s for point in points]
        panel.plot(speeds, heights, "o", color="#1f6feb")
        for point, speed, height in zip(points, speeds, heights, strict=True):
            panel.annotate(
                point.name, (speed, height), xytext=(5, 5), textcoords="offset points", fontsize=8
            )
        panel.set(xlabel="frames/s, reading included", ylabel=label)
        panel.margins(x=0.15, y=0.12)
        panel.grid(alpha=0.3)
    figure.suptitle(title, fontsize=10)
    FigureCanvasAgg(figure)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=100, format="png")


def main() -> None:
    """Run the settings, then write the table and the plot."""
    options = tyro.cli(Options, description=__doc__)
    points = run_settings(load_settings(options), options)
    table = markdown_table(points)
    Console(width=120, soft_wrap=True).print(table, markup=False)
    if options.table:
        with atomic_path(options.table) as temporary:
            temporary.write_text(table, encoding="utf-8")
    if options.plot:
        title = f"{options.dataset}, {options.resolution}, {options.device}, all frames"
        plot_frontier(points, options.plot, title)


if __name__ == "__main__":
    main()
