"""Ctrl-C as a request to finish, checked where stopping leaves everything in order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupt:
    """Whether the user asked to stop."""

    def __init__(self) -> None:
        self.requested = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the request; whoever repeats it before it was answered wants out at once."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Yield an Interrupt that Ctrl-C sets; a second Ctrl-C raises KeyboardInterrupt as usual.

    Outside the main thread, where Python lets nobody handle signals, it is never set.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    previous = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
