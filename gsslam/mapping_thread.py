"""Mapping beside tracking: one keyframe at a time, in a thread of its own."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import torch

from gsslam.callers_thread import CallersThread
from gsslam.errors import TrackingError
from gsslam.keyframes import Keyframe
from gsslam.mapping import Mapper
from gsslam.recorder import recorder
from gsslam.trace import Trace
from gsslam.work_stream import WorkStream


class MappingThread:
    """Hands keyframes to a mapper, one after the other.

    At most one keyframe is on its way, so that whoever submits the next one waits until the one
    before has been taken: that is all the queue there is.
    """

    def __init__(
        self, mapper: Mapper, device: torch.device, trace: Trace, *, own_thread: bool
    ) -> None:
        """Without ``own_thread`` the work is done in ``submit``; everything else is the same."""
        self._mapper = mapper
        self._device = device
        self._trace = trace
        self._executor: Executor = CallersThread()
        self._stream: WorkStream | None = None
        if own_thread:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="gsslam-mapping")
            self._stream = WorkStream(device, urgent=False)
        self._future: Future[float] | None = None

    @property
    def busy(self) -> bool:
        """Whether a keyframe was submitted and its result not taken."""
        return self._future is not None

    @property
    def ready(self) -> bool:
        """Whether a result can be taken without waiting."""
        return self._future is not None and self._future.done()

    def submit(self, keyframe: Keyframe, map_version: int) -> None:
        """Begin to integrate ``keyframe``, of which version ``map_version`` of the map will come.

        The result of the keyframe before must have been taken.
        """
        if self._future is not None:
            raise TrackingError("the keyframe before is still being mapped")
        if self._device.type == "cuda":
            # This thread's stream may still be copying the map, which mapping changes next.
            torch.cuda.current_stream(self._device).synchronize()
        self._future = self._executor.submit(self._integrate, keyframe, map_version)

    def wait(self) -> None:
        """Return when mapping is at rest, however that went."""
        if self._future is not None:
            self._future.exception()

    def peek(self) -> float | None:
        """Return what ``take`` would, but leave it there; None where there is nothing to take."""
        return None if self._future is None else self._future.result()

    def resume(self, mapping_ms: float) -> None:
        """Go on as if a keyframe, of which the mapper holds the result, waited to be taken."""
        self._future = Future()
        self._future.set_result(mapping_ms)

    def take(self) -> float:
        """Wait for the keyframe's result and return the milliseconds that mapping it took.

        Raises what went wrong while it was mapped.
        """
        if self._future is None:
            raise TrackingError("no keyframe is being mapped")
        future, self._future = self._future, None
        return future.result()

    def close(self) -> None:
        """Return when the thread has ended; nothing can be submitted after that."""
        self._executor.shutdown()

    def _integrate(self, keyframe: Keyframe, map_version: int) -> float:
        started = time.perf_counter()
        recorder.set_context(step=keyframe.index, map_version=map_version)
        stream = self._stream.use() if self._stream else contextlib.nullcontext()
        with self._trace.span("mapping", keyframe.index), stream:
            self._mapper.integrate(keyframe)
        return 1000 * (time.perf_counter() - started)
