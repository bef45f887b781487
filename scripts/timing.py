"""What the benches share: times of a piece of work, and the settings of the native kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
