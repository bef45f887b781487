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
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from gsslam.metrics_table import METRICS_TABLE

if TYPE_CHECKING:
    from gsslam.report import Progress as RunProgress
    from gsslam.results import Metric
    from gsslam.run import RunResult

# Where stderr is no terminal, a line of progress comes this often.
_SECONDS_BETWEEN_LINES = 10.0


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
    for section in METRICS_TABLE:
        for row in section:
            metric = by_name.get(row.name)
            if metric is not None:
                style = "bold" if row.is_headline else None
                table.add_row(row.label, row.formatted(metric.value), row.unit, style=style)
        table.add_section()
    return table


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

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

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


class _TaskReport(_Report):
    """Progress of one task; shown on a terminal only."""

    def __init__(self, name: str, *columns: ProgressColumn) -> None:
        console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            *(TextColumn("{task.description}"), BarColumn(), *columns),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=None)

    def update(self, done: int, total: int | None) -> None:
        """Show how much is done; the total may be unknown."""
        self._bar.update(self._task, completed=done, total=total)


class CountReport(_TaskReport):
    """Progress of a task whose pieces are counted."""

    def __init__(self, name: str) -> None:
        super().__init__(name, MofNCompleteColumn(), TimeRemainingColumn(compact=True))


class DownloadReport(_TaskReport):
    """Progress of a download, in bytes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
