"""Reading ahead: the next frames are decoded while the current one is tracked."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING

from gsslam.callers_thread import CallersThread
from gsslam.frame import Frame
from gsslam.trace import Trace

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset

# Decoding keeps two threads busy at the rate of a fast GPU; more frames ahead only cost memory.
_THREADS = 2
FRAMES_AHEAD = 4


class FrameReader:
    """Delivers a dataset's frames in order; to be used in a ``with`` statement."""

    def __init__(
        self, dataset: Dataset, trace: Trace, *, first: int = 0, own_threads: bool = True
    ) -> None:
        """Begin at frame ``first``; without ``own_threads``, ``read`` does all the work."""
        self._dataset = dataset
        self._trace = trace
        self._pool: Executor = CallersThread()
        self._frames_ahead = 0
        if own_threads:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="gsslam-reader")
            self._frames_ahead = FRAMES_AHEAD
        self._ahead: deque[Future[tuple[Frame, float]]] = deque()
        self._next = first

    def __enter__(self) -> FrameReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def read(self) -> tuple[Frame, float]:
        """Return the next frame and the milliseconds that reading it took.

        Raises what reading it raised, BadFrameError among others; the call after that delivers the
        frame behind it. Raises IndexError past the last frame.
        """
        while len(self._ahead) <= self._frames_ahead and self._next < len(self._dataset):
            self._ahead.append(self._pool.submit(self._read, self._next))
            self._next += 1
        if not self._ahead:
            raise IndexError("all frames have been read")
        return self._ahead.popleft().result()

    def skip(self) -> None:
        """Pass over the next frame, whether it was read already or not."""
        if self._ahead:
            self._ahead.popleft().cancel()
        else:
            self._next += 1

    def _read(self, index: int) -> tuple[Frame, float]:
        started = time.perf_counter()
        with self._trace.span("reading", index):
            frame = self._dataset[index]
        return frame, 1000 * (time.perf_counter() - started)
