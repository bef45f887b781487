"""The time at which a sensor would have delivered each frame."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray


class SensorClock:
    """Plays the frames of a sequence at the pace of their time stamps."""

    def __init__(self, timestamps: NDArray[np.float64], first: int = 0) -> None:
        """``timestamps`` (N,) in seconds; the clock starts now, at frame ``first``."""
        self._due = timestamps - timestamps[first]
        self._started = time.perf_counter()

    def newest(self, index: int) -> int:
        """Return the newest frame that has been delivered, at least ``index``, which is waited for.

        Frames between ``index`` and the result came while nobody had time for them.
        """
        early = self._due[index] - (time.perf_counter() - self._started)
        if early > 0:
            time.sleep(early)  # the sensor's own pace: there is nothing else to wait for
        elapsed = time.perf_counter() - self._started
        return max(index, int(np.searchsorted(self._due, elapsed, side="right")) - 1)
