"""Time the quantised linear layer beside torch's of float32, and measure AWQ's error.

Run: python -m scripts.bench_linear [--device cuda] [--threads 2] [--repeats 30]

On a GPU the layer with 16-bit activations is timed beside torch's of float16, both as CUDA graphs
of many calls, so that the kernels count alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import nn

from gsslam import _native
from gsslam.quant import LinearW4A8, LinearW4A16, quantize_weight, search_scales
from scripts.gpu_timing import as_graph, gpu_milliseconds
from scripts.timing import measure, native_settings

SIZES = [(4096, 4096), (384, 1536)]  # inputs, outputs
ROWS = (1, 16, 1200)
GPU_BYTES_PER_MICROSECOND = 4.3e6  # of an H200's memory, as a copy reaches it
KERNELS = [("avx512", True), ("avx512", False), ("avx2", False), ("portable", False)]


@dataclass
class Options:
    """What is timed."""

    device: str = "cpu"
    threads: int = 2
    repeats: int = 30


def bench_times(options: Options) -> Table:
    """Return a table of times; of all rounds, ours and torch's alternate."""
    table = Table(title=f"Linear layers, {options.threads} threads, median ms")
    for column in ("layer", "rows", "kernel", "ours", "torch float32", "times faster"):
        table.add_column(column, justify="left" if column in ("layer", "kernel") else "right")
    for inputs, outputs in SIZES:
        linear = nn.Linear(inputs, outputs)
        layer = LinearW4A8.from_linear(linear)
        for rows in ROWS:
            x = torch.randn(rows, inputs)
            for isa, vnni in KERNELS:
                layer.vnni, repeats = vnni, 5 if rows > 100 else options.repeats
                with native_settings(options.threads, isa) as usable:
                    if not usable:
                        continue
                    name = _native.linear_kernel(vnni)
                    ours = measure(lambda: layer(x), repeats)  # noqa: B023
                with native_settings(1), torch.no_grad():
                    torch.set_num_threads(options.threads)
                    theirs = measure(lambda: linear(x), repeats)  # noqa: B023
                cells = (f"{ours.median:.3f}", f"{theirs.median:.3f}")
                ratio = f"{theirs.median / ours.median:.1f}"
                table.add_row(f"{inputs} to {outputs}", str(rows), name, *cells, ratio)
    return table


def bench_gpu_times(options: Options) -> Table:
    """Return a table of times of few rows, and of the share of what reading the weights takes."""
    calls = 50
    table = Table(title=f"Linear layers, {torch.cuda.get_device_name()}, median us")
    for column in ("layer", "rows", "W4A16", "torch float16", "times faster", "floor", "share"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for inputs, outputs in SIZES:
        linear = nn.Linear(inputs, outputs, device="cuda", dtype=torch.float16)
        layer = LinearW4A16(quantize_weight(linear.weight.cpu()), linear.bias)
        floor = layer.nbytes / GPU_BYTES_PER_MICROSECOND
        for rows in ROWS[:2]:
            x = torch.randn(rows, inputs, device="cuda", dtype=torch.float16)
            with torch.no_grad():
                graphs = [as_graph(partial(f, x), calls) for f in (layer, linear)]
            ours, theirs = (
                1e3 * gpu_milliseconds(graph, options.repeats) / calls for graph in graphs
            )
            cells = (f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f}", f"{floor:.2f}")
            table.add_row(f"{inputs} to {outputs}", str(rows), *cells, f"{floor / ours:.0%}")
    return table


def awq_errors() -> Table:
    """Return a table of squared output errors with few, strong channels and without."""
    table = Table(
        title="Squared error of 384 to 1536 on new activations, over the outputs' squares"
    )
    for column in ("strong channels", "times the others", "plain", "AWQ", "alpha", "factor"):
        table.add_column(column, justify="right")
    torch.manual_seed(0)
    linear = nn.Linear(384, 1536)
    for strong, times in ((0, 1), (4, 10), (4, 30), (4, 100), (16, 30)):
        x = torch.randn(1024, 384)
        x[:, torch.randperm(384)[:strong]] *= times
        found = search_scales([linear.weight], x[:512])
        with torch.no_grad():
            exact = linear(x[512:])
        errors = [
            float((LinearW4A8.from_linear(linear, scales)(x[512:]) - exact).square().sum())
            / float(exact.square().sum())
            for scales in (None, found.scales)
        ]
        cells = (f"{errors[0]:.2e}", f"{errors[1]:.2e}", f"{found.alpha:.2f}")
        table.add_row(str(strong), str(times), *cells, f"{errors[0] / errors[1]:.2f}")
    return table


def main() -> None:
    """Run the bench."""
    options = tyro.cli(Options, description=__doc__)
    console = Console(width=120)
    if options.device == "cuda":
        console.print(bench_gpu_times(options))
        return
    console.print(bench_times(options))
    console.print(awq_errors())


if __name__ == "__main__":
    main()
