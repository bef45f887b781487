"""What the terminal shows: progress on stderr, results on stdout."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from gsslam.report import Progress as RunProgress
    from gsslam.results import Metric
    from gsslam.run import RunResult

# Where stderr is no terminal, a line of progress comes this often.
_SECONDS_BETWEEN_LINES = 10.0

# Sections of the table; name in metrics.json, what a reader calls it, decimals.
_TABLE = (
    (
        ("frames", "frames", 0),
        ("lost_frames", "frames lost", 0),
        ("recoveries", "times found again", 0),
        ("skipped_frames", "frames skipped (unreadable)", 0),
        ("dropped_frames", "frames dropped (no time)", 0),
        ("keyframes", "keyframes", 0),
    ),
    (
        ("ate_rmse_cm", "ATE RMSE, all frames", 2),
        ("rpe_translation_cm", "RPE translation, frame to frame", 3),
        ("rpe_rotation_deg", "RPE rotation, frame to frame", 3),
        ("rpe_translation_1s_cm", "RPE translation, over a second", 2),
        ("rpe_rotation_1s_deg", "RPE rotation, over a second", 2),
    ),
    (
        ("psnr_db", "PSNR, all frames", 2),
        ("psnr_exposure_db", "PSNR, exposure fitted", 2),
        ("psnr_heldout_db", "PSNR, held-out frames", 2),
        ("psnr_heldout_exposure_db", "PSNR, held-out, exposure fitted", 2),
        ("ssim", "SSIM, all frames", 3),
        ("ssim_heldout", "SSIM, held-out frames", 3),
        ("depth_l1_cm", "depth L1", 2),
        ("depth_coverage_pct", "depth covered", 1),
    ),
    (
        ("frames_per_s", "speed, reading included", 1),
        ("reading_ms", "reading, mean a frame", 1),
        ("tracking_ms", "tracking, mean a frame", 1),
        ("mapping_ms", "mapping, mean a frame", 1),
        ("waiting_ms", "tracking's wait for mapping, mean a frame", 1),
        ("peak_memory_mb", "peak memory of the process", 0),
        ("gpu_memory_mb", "memory in use on the GPU", 0),
        ("peak_budget_mb", "peak of what the memory budget counts", 0),
        ("spheres", "spheres", 0),
        ("map_mb", "map file", 2),
        ("compact_map_mb", "compact map file", 2),
    ),
)


class _Output(Console):
    """The console for results; that the reader of a pipe left is for the caller to judge."""

    def on_broken_pipe(self) -> None:
        """Let the error through, where rich would exit with status 1."""
        raise BrokenPipeError


def output() -> Console:
    """Return the console for results."""
    console = _Output(highlight=False)
    # A file or a pipe has no width; rich would assume that of an old terminal.
    return console if console.is_terminal else _Output(highlight=False, width=120)


def print_line(text: str) -> None:
    """Print ``text`` as it is, however wide the terminal."""
    output().print(text, markup=False, soft_wrap=True)


def print_result(result: RunResult) -> None:
    """Print the table of metrics, and where the rest is."""
    output().print(metrics_table(result.metrics))
    if result.interrupted:
        print_line("Interrupted: these are the results up to there.")
    print_line(f"Results in {result.folder}")


def metrics_table(metrics: tuple[Metric, ...]) -> Table:
    """Return the table of those ``metrics`` that a reader looks for; metrics.json has all."""
    by_name = {metric.name: metric for metric in metrics}
    table = Table()
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", style="dim", no_wrap=True)
    for section in _TABLE:
        for name, label, decimals in section:
            metric = by_name.get(name)
            if metric is not None:
                style = "bold" if name in ("ate_rmse_cm", "psnr_db", "frames_per_s") else None
                table.add_row(label, _formatted(metric.value, decimals), metric.unit, style=style)
        table.add_section()
    return table


def _formatted(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


class _Report:
    """A progress bar that is shown inside a ``with`` statement."""

    _bar: Progress

    def __enter__(self: _SomeReport) -> _SomeReport:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()


_SomeReport = TypeVar("_SomeReport", bound=_Report)


class ProgressReport(_Report):
    """Progress of a run: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            expand=True,
            disable=not self._console.is_terminal,
        )
        self._step = ""
        self._task = TaskID(0)
        self._started = self._last_line = 0.0

    def update(self, progress: RunProgress) -> None:
        """Show where the run stands."""
        now = time.monotonic()
        if progress.step != self._step:
            self._step = progress.step
            self._started = self._last_line = now
            self._task = self._bar.add_task(progress.step, total=progress.total, detail="")
        detail = self._detail(progress, now - self._started)
        self._bar.update(self._task, completed=progress.done, detail=detail)
        due = now - self._last_line >= _SECONDS_BETWEEN_LINES or progress.done == progress.total
        if not self._console.is_terminal and due:
            self._last_line = now
            line = f"{progress.step} {progress.done}/{progress.total}  {detail}"
            self._console.print(line, markup=False, soft_wrap=True)

    @staticmethod
    def _detail(progress: RunProgress, seconds: float) -> str:
        parts = []
        # The first frame started before the clock did.
        if progress.done > 1 and seconds > 0:
            parts.append(f"{(progress.done - 1) / seconds:.1f} frames/s")
        parts.append(f"{progress.spheres:,} spheres")
        if progress.record is not None and progress.record.colour_residual is not None:
            parts.append(f"residual {progress.record.colour_residual:.3f}")
        return "  ".join(parts)


class DownloadReport(_Report):
    """Progress of a download."""

    def __init__(self, name: str) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=None)

    def update(self, done_bytes: int, total_bytes: int | None) -> None:
        """Show how much is there; the total is unknown where the server does not say it."""
        self._bar.update(self._task, completed=done_bytes, total=total_bytes)


class FrameReport(_Report):
    """Progress of something that goes over the frames of a sequence."""

    def __init__(self, name: str) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=None)

    def update(self, done: int, total: int | None) -> None:
        """Show how many frames are done."""
        self._bar.update(self._task, completed=done, total=total)
