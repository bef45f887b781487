"""Reading ahead: the next frames are decoded while the current one is tracked."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING

from gsslam.frame import Frame

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset

# Decoding keeps two threads busy at the rate of a fast GPU; more frames ahead only cost memory.
_THREADS = 2
_FRAMES_AHEAD = 4


class FrameReader:
    """Delivers a dataset's frames in order; to be used in a ``with`` statement."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="gsslam-reader")
        self._ahead: deque[Future[tuple[Frame, float]]] = deque()
        self._next = 0

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
        while len(self._ahead) <= _FRAMES_AHEAD and self._next < len(self._dataset):
            self._ahead.append(self._pool.submit(self._read, self._next))
            self._next += 1
        if not self._ahead:
            raise IndexError("all frames have been read")
        return self._ahead.popleft().result()

    def _read(self, index: int) -> tuple[Frame, float]:
        started = time.perf_counter()
        frame = self._dataset[index]
        return frame, 1000 * (time.perf_counter() - started)
