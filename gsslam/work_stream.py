"""A CUDA stream for the work of one thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


class WorkStream:
    """Queues work of its own beside that of other threads; on the CPU it changes nothing.

    Two threads that share a GPU share its multiprocessors block by block: kernels of an ``urgent``
    stream go before those of others that wait.
    """

    def __init__(self, device: torch.device, *, urgent: bool) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            # Out of range is taken as the nearest that there is.
            self._stream = torch.cuda.Stream(device, priority=-5 if urgent else 0)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Queue what the context does, behind what was queued before; on return it is done."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield
            self._stream.synchronize()
