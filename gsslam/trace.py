"""A trace of what each thread did and when, for chrome://tracing or Perfetto."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gsslam.files import atomic_path


class Trace:
    """Collects spans of time from any thread; one that is not enabled collects nothing."""

    def __init__(self, *, enabled: bool = False) -> None:
        self._enabled = enabled
        self._began = time.perf_counter_ns()
        # Appended to by all threads at once, which lists allow.
        self._events: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def span(self, name: str, frame: int) -> Iterator[None]:
        """Record, as ``name`` of frame ``frame``, how long the context lasts."""
        if not self._enabled:
            yield
            return
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            ended = time.perf_counter_ns()
            thread = threading.current_thread()
            self._events.append(
                {
                    "name": name,
                    "ph": "X",
                    # Microseconds.
                    "ts": (began - self._began) / 1000,
                    "dur": (ended - began) / 1000,
                    "pid": os.getpid(),
                    "tid": thread.native_id,
                    "args": {"frame": frame, "thread": thread.name},
                }
            )

    def write(self, path: Path) -> None:
        """Write the spans in Chrome's trace event format; raises OutputError where it cannot."""
        names = {event["tid"]: event["args"]["thread"] for event in self._events}
        threads = [
            {
                "name": "thread_name",
                "ph": "M",
                "pid": os.getpid(),
                "tid": thread,
                "args": {"name": name},
            }
            for thread, name in names.items()
        ]
        with atomic_path(path) as temporary:
            temporary.write_text(
                json.dumps({"traceEvents": [*threads, *self._events]}), encoding="utf-8"
            )
