"""Times on a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

Work = Callable[[], object]


def as_graph(work: Work, times: int = 1) -> Work:
    """Record some runs' kernels once; what is returned launches them without the host's part."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    return graph.replay


def gpu_milliseconds(work: Work, repeats: int) -> float:
    """Return the median time of a run on the GPU, of batches of runs without waiting."""
    batch = 5
    times: list[float] = []
    for i in range(repeats + 1):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(batch):
            work()
        end.record()
        end.synchronize()
        if i > 0:
            times.append(start.elapsed_time(end) / batch)
    return statistics.median(times)
