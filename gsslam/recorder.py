"""The flight recorder: the last native operations, kept in memory for when something fails."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

from gsslam.errors import DatasetError
from gsslam.files import atomic_path

CAPACITY = 256


class Entry:
    """One native operation; it holds shapes and numbers, never a tensor."""

    __slots__ = (
        "arguments",
        "device",
        "duration_ns",
        "error",
        "index",
        "map_version",
        "operation",
        "started_ns",
        "step",
        "stream",
        "thread",
    )

    def __init__(
        self, index: int, operation: str, device: str, stream: int | None, context: _Context
    ) -> None:
        # Counts all operations, from 0.
        self.index = index
        self.operation = operation
        self.device = device
        # Handle of the CUDA stream; None on the CPU.
        self.stream = stream
        self.thread = context.thread
        self.step = context.step
        self.map_version = context.map_version
        # By name: (dtype, shape) of a tensor, numbers as they are.
        self.arguments: dict[str, Any] = {}
        self.error = ""
        # None while it runs. On a GPU the time until it was queued, or done where it waits.
        self.duration_ns: int | None = None
        self.started_ns = time.perf_counter_ns()

    def finish(self, error: BaseException | None = None) -> None:
        """Take the time, and the error that it ended with."""
        self.duration_ns = time.perf_counter_ns() - self.started_ns
        if error is not None:
            self.error = f"{type(error).__name__}: {error}"


class _Context(threading.local):
    """What a thread is working on."""

    def __init__(self) -> None:
        self.thread = threading.current_thread().name
        self.step: int | None = None
        self.map_version: int | None = None


class FlightRecorder:
    """A ring of the last ``capacity`` operations of all threads.

    Taking a number and putting an entry into its place are single operations of the interpreter, so
    that recording takes no lock.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._ring: list[Entry | None] = [None] * capacity
        self._numbers = itertools.count()
        self._context = _Context()
        # Turns the clock of durations into that of the wall.
        self._unix_ns = time.time_ns() - time.perf_counter_ns()

    def set_context(self, *, step: int | None = None, map_version: int | None = None) -> None:
        """Say what the calling thread works on: the frame's index and the map's version.

        It holds for this thread until it is set again; what is left out stays as it is.
        """
        if step is not None:
            self._context.step = step
        if map_version is not None:
            self._context.map_version = map_version

    def begin(self, operation: str, device: str, stream: int | None) -> Entry:
        """Record that an operation starts; the caller fills in its arguments and finishes it."""
        index = next(self._numbers)
        entry = Entry(index, operation, device, stream, self._context)
        self._ring[index % len(self._ring)] = entry
        return entry

    def clear(self) -> None:
        """Forget all entries, as at the start of a run."""
        for place in range(len(self._ring)):
            self._ring[place] = None

    def entries(self) -> list[Entry]:
        """Return the entries, oldest first."""
        return sorted(filter(None, self._ring), key=lambda entry: entry.index)

    def write(self, path: Path) -> None:
        """Write one JSON object a line, oldest operation first.

        Raises OutputError where ``path`` cannot be written.
        """
        lines = [json.dumps(self._values(entry), allow_nan=False) for entry in self.entries()]
        with atomic_path(path) as temporary:
            temporary.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def _values(self, entry: Entry) -> dict[str, Any]:
        duration_ns = entry.duration_ns
        return {
            "index": entry.index,
            "operation": entry.operation,
            "device": entry.device,
            "stream": entry.stream,
            "thread": entry.thread,
            "step": entry.step,
            "map_version": entry.map_version,
            "started_unix_s": round((entry.started_ns + self._unix_ns) / 1e9, 6),
            "duration_ms": None if duration_ns is None else duration_ns / 1e6,
            # A copy: the thread that runs it may still be adding to it.
            "arguments": {name: _plain(value) for name, value in entry.arguments.copy().items()},
            "error": entry.error,
        }


def read_flight(path: Path) -> list[dict[str, Any]]:
    """Return what ``FlightRecorder.write`` wrote; raises DatasetError for anything else."""
    try:
        entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for entry in entries:
            if not isinstance(entry["arguments"], dict) or not isinstance(entry["operation"], str):
                raise TypeError("arguments")
        return entries
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise DatasetError(f"{path} is damaged: {error}") from error


def _plain(value: Any) -> Any:
    """Return what JSON can say: tensors as their type and shape."""
    if isinstance(value, tuple):
        dtype, shape = value
        return {"dtype": str(dtype).removeprefix("torch."), "shape": list(shape)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


recorder = FlightRecorder()
