"""Tables of runs: means over repetitions with their spread, beside what others published."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A number of the table."""

    title: str
    # From the metrics of one run; None where it has no such number.
    value: Callable[[Metrics], float | None]
    decimals: int

    @staticmethod
    def of(title: str, key: str, decimals: int) -> Column:
        """Return the column of a metric."""
        return Column(title, lambda metrics: metrics.get(key), decimals)

    def cell(self, runs: Iterable[Metrics]) -> str:
        """Return the mean over runs, and the standard deviation if there are several."""
        present = [value for value in map(self.value, runs) if value is not None]
        return mean_and_spread(present, self.decimals)


FRAMES = Column.of("frames", "frames", 0)
LOST = Column.of("lost", "lost_frames", 0)
ATE = Column.of("ATE RMSE, cm", "ate_rmse_cm", 2)
PSNR = (
    Column.of("PSNR, dB", "psnr_db", 2),
    Column.of("fitted", "psnr_exposure_db", 2),
)
HELDOUT_PSNR = (
    Column.of("held out", "psnr_heldout_db", 2),
    Column.of("fitted", "psnr_heldout_exposure_db", 2),
)
SSIM = Column.of("SSIM", "ssim", 3)
SPHERES = Column.of("spheres", "spheres", 0)
MAP_SIZE = Column.of("map, MB", "compact_map_mb", 2)
BUDGET = Column.of("budgeted, MB", "peak_budget_mb", 0)
MEMORY = Column.of("process, MB", "peak_memory_mb", 0)
SPEED = Column.of("frames/s", "frames_per_s", 1)


@dataclass(frozen=True)
class Table:
    """A heading, and rows of as many cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table as Markdown, without its title."""
        lines = [_line(self.header), _line(["---"] * len(self.header)), *map(_line, self.rows)]
        return "\n".join(lines) + "\n"


def mean_and_spread(values: Sequence[float], decimals: int) -> str:
    """Return ``mean ± standard deviation`` of the values, a dash where there are none.

    Counts that are all the same go without a deviation.
    """
    if not values:
        return "-"
    text = f"{statistics.mean(values):,.{decimals}f}"
    if len(values) > 1 and (decimals or min(values) < max(values)):
        text += f" ± {statistics.stdev(values):.{decimals}f}"
    return text


def table_of_runs(
    title: str, first: str, runs: Mapping[str, Sequence[Metrics]], columns: Sequence[Column]
) -> Table:
    """Return a table with a row for each name, of the means over its runs."""
    rows = [(name, *(column.cell(found) for column in columns)) for name, found in runs.items()]
    return Table(title, (first, *(column.title for column in columns)), tuple(rows))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
