"""How often the viewer may work, so that the run does not notice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

# The pauses on a busy computer grow to this many times those on an idle one.
_LONGEST_STRETCH = 5.0


class Pace:
    """Lets work begin only so often that it takes no more than a share of one processor's time.

    What counts is the processor time of the thread that works and of ``helper``, a thread that
    sends what came of it. Where other programs leave the process less than one processor, pauses
    grow: it is the run's time that is shared.
    """

    def __init__(self, share: float, shortest: float, helper: int | None = None) -> None:
        """``shortest`` seconds lie between two beginnings; ``helper`` is a thread's identifier."""
        self._share, self._shortest = share, shortest
        self._clock = _clock_of(helper)
        self._helped = self._helper_time()
        self._next = 0.0
        self._since = (time.monotonic(), time.process_time())

    def remaining(self) -> float:
        """Return the seconds until the next work may begin; 0 or less: now."""
        return self._next - time.monotonic()

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Measure what is done in the context; the helper's share of it is what it did since."""
        began, busy = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            helped = self._helper_time()
            cost = time.thread_time() - busy + helped - self._helped
            self._helped = helped
            pause = cost / self._share * self._stretch()
            self._next = began + max(self._shortest, pause)

    def _stretch(self) -> float:
        """Return how much longer pauses must be for what the process got since the last call."""
        (then, used), self._since = self._since, (time.monotonic(), time.process_time())
        elapsed, got = self._since[0] - then, self._since[1] - used
        return min(max(elapsed / max(got, 1e-9), 1.0), _LONGEST_STRETCH)

    def _helper_time(self) -> float:
        if self._clock is None:
            return 0.0
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # the thread has ended
            return self._helped


def _clock_of(thread: int | None) -> int | None:
    """Return the clock of a thread's processor time, None where the system has none."""
    if thread is None or not hasattr(time, "pthread_getcpuclockid"):
        return None
    return time.pthread_getcpuclockid(thread)
