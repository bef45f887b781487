"""What the benches share: times of a piece of work, and the settings of the native kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from gsslam import _native

INSTRUCTION_SETS = ("portable", "avx2", "avx512")
_WARM_UP = 3


@dataclass(frozen=True)
class Timing:
    """Milliseconds: the median, and the quartiles as its spread."""

    median: float
    low: float
    high: float

    def cells(self) -> tuple[str, str]:
        """Return median and spread as a table shows them."""
        return f"{self.median:.3f}", f"{self.low:.3f} to {self.high:.3f}"


def measure(work: Callable[[], object], repeats: int) -> Timing:
    """Return the times of ``work``, the first runs left out."""
    times = []
    for _ in range(_WARM_UP + repeats):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    low, median, high = statistics.quantiles(times[_WARM_UP:], n=4)
    return Timing(median, low, high)


class Steps(Protocol):
    """Work of which a call takes a number of steps, and may only queue them on a GPU."""

    @property
    def call(self) -> Callable[[], object]: ...  # noqa: D102
    @property
    def steps(self) -> int: ...  # noqa: D102


def alternate(works: Mapping[str, Steps], rounds: int) -> dict[str, Timing]:
    """Return the times of a step of each, measured in turn over about 10 milliseconds of work."""
    times: dict[str, list[float]] = {name: [] for name in works}
    repeats: dict[str, int] = {}
    for name, work in works.items():
        for _ in range(_WARM_UP):
            once = _milliseconds(work, 1)
        repeats[name] = max(1, min(10, round(10 / once / work.steps)))
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(_milliseconds(work, repeats[name]))
    timings = {}
    for name, values in times.items():
        low, median, high = statistics.quantiles(values, n=4)
        timings[name] = Timing(median, low, high)
    return timings


def _milliseconds(work: Steps, repeats: int) -> float:
    _wait()
    start = time.perf_counter()
    for _ in range(repeats):
        work.call()
    _wait()
    return 1e3 * (time.perf_counter() - start) / (repeats * work.steps)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def native_settings(threads: int, isa: str | None = None) -> Iterator[bool]:
    """Set the native pool and instruction set for a while; false where the processor lacks it.

    Torch keeps to one thread meanwhile: its idle ones spin, which would slow the native pool.
    """
    before = _native.thread_count(), _native.isa(), torch.get_num_threads()
    try:
        _native.set_thread_count(threads)
        torch.set_num_threads(1)
        yield isa is None or _native.set_isa(isa)
    finally:
        _native.set_thread_count(before[0])
        _native.set_isa(before[1])
        torch.set_num_threads(before[2])
