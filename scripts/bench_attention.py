"""Time the native attention, forward and backward, beside torch's.

Run: python -m scripts.bench_attention [--device cuda] [--threads 2] [--repeats 5]

On a GPU, in float16, torch is the fastest of scaled_dot_product_attention's backends that take the
sizes, and of the plain formula; forward passes are replayed as CUDA graphs, so that the kernels
count alone, and forward and backward together are called from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gsslam.attention import attention
from scripts.gpu_timing import as_graph, gpu_milliseconds
from scripts.timing import measure, native_settings

PEAK_TFLOPS = 989  # of an H200, dense 16-bit products
_BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")


@dataclass
class Options:
    """What is timed."""

    device: str = "cpu"
    threads: int = 2
    repeats: int = 5


@dataclass(frozen=True)
class Case:
    """Sizes of one attention."""

    name: str
    heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int

    @property
    def gflop(self) -> float:
        """Work of the forward pass."""
        return 2e-9 * self.heads * self.queries * self.keys * (self.dim + self.value_dim)


CASES = {
    "cpu": [
        Case("dictionary of 2048 atoms, 19200 queries", 1, 19_200, 2048, 32, 512),
        Case("1200 tokens, 6 heads of 64", 6, 1200, 1200, 64, 64),
        Case("1200 tokens, 1 head of 384", 1, 1200, 1200, 384, 384),
        Case("4800 tokens, 1 head of 384", 1, 4800, 4800, 384, 384),
    ],
    "cuda": [
        Case("dictionary, 76800 queries", 1, 76_800, 2048, 32, 512),
        Case("dictionary, 307200 queries", 1, 307_200, 2048, 32, 512),
        Case("4800 tokens, 1 head of 384", 1, 4800, 4800, 384, 384),
        Case("1200 tokens, 1 head of 384", 1, 1200, 1200, 384, 384),
        Case("4800 tokens, 8 heads of 128", 8, 4800, 4800, 128, 128),
        Case("1200 tokens, 6 heads of 64", 6, 1200, 1200, 64, 64),
    ],
}
Tensors = tuple[torch.Tensor, ...]
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Timer = Callable[[Callable[[], object], int], float]


def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention by its formula, which stores all scores."""
    scores = (query.shape[-1] ** -0.5 * query) @ key.mT
    output: torch.Tensor = scores.softmax(-1) @ value
    return output


def backend(name: str) -> Attention:
    """Return torch's attention by one of its backends."""

    def run(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(getattr(SDPBackend, name)):
            output: torch.Tensor = scaled_dot_product_attention(query, key, value)
            return output

    return run


def contestants(device: str) -> dict[str, Attention]:
    """Return what is compared, by name."""
    if device == "cpu":
        return {"native": attention, "torch": scaled_dot_product_attention, "formula": plain}
    theirs = {name.split("_")[0].lower(): backend(name) for name in _BACKENDS}
    return {"native": attention, **theirs, "formula": plain}


def tensors(case: Case, device: str) -> Tensors:
    """Return query, key, value and the gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(case.queries, case.dim), (case.keys, case.dim), (case.keys, case.value_dim)]
    shapes.append((case.queries, case.value_dim))
    dtype = torch.float32 if device == "cpu" else torch.float16
    made = (torch.randn(1, case.heads, *shape, generator=generator) for shape in shapes)
    return tuple(tensor.to(device, dtype) for tensor in made)


def cpu_milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time."""
    return measure(work, repeats).median


def times(function: Attention, inputs: Tensors, repeats: int, timer: Timer) -> tuple[float, float]:
    """Return the times of the forward pass and of forward and backward together."""
    query, key, value, grad = inputs
    with torch.no_grad():
        once = partial(function, query, key, value)
        forward = timer(as_graph(once) if query.is_cuda else once, repeats)
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]

    def both() -> None:
        torch.autograd.grad(function(*leaves), leaves, grad)

    return forward, timer(both, repeats)


@contextmanager
def threads_of(name: str, options: Options) -> Iterator[None]:
    """Give the CPU's threads to the native kernels, or to torch."""
    with native_settings(options.threads):
        if name != "native":
            torch.set_num_threads(options.threads)
        yield


def add_rows(table: Table, case: Case, options: Options) -> None:
    """Time a case by all that take it."""
    inputs = tensors(case, options.device)
    timer = cpu_milliseconds if options.device == "cpu" else gpu_milliseconds
    for name, function in contestants(options.device).items():
        try:
            with threads_of(name, options):
                forward, both = times(function, inputs, options.repeats, timer)
        except RuntimeError as error:  # a backend that does not take these sizes, or no memory
            table.add_row(case.name, name, f"no: {type(error).__name__}")
            continue
        rate = case.gflop / forward
        share = f"{rate / PEAK_TFLOPS:.0%}" if options.device != "cpu" else ""
        table.add_row(case.name, name, f"{forward:.3f}", f"{rate:.3f}", share, f"{both:.3f}")


def main() -> None:
    """Run the bench."""
    options = tyro.cli(Options, description=__doc__)
    table = Table(title=f"Attention on {options.device}")
    columns = ("case", "by", "forward ms", "TFLOP/s", "of peak", "forward+backward ms")
    for column in columns:
        table.add_column(column, justify="left" if column in ("case", "by") else "right")
    for case in CASES[options.device]:
        add_rows(table, case, options)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
