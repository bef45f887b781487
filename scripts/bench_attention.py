"""Time the native attention, forward and backward, beside torch's scaled_dot_product_attention.

Run: python -m scripts.bench_attention [--threads 2] [--repeats 5]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import tyro
from rich.console import Console
from rich.table import Table

from gsslam import _native
from gsslam.attention import attention
from scripts.timing import Timing, measure, native_settings


@dataclass
class Options:
    """What is timed."""

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


CASES = [
    Case("dictionary of 2048 atoms, 19200 queries", 1, 19_200, 2048, 32, 512),
    Case("1200 tokens, 6 heads of 64", 6, 1200, 1200, 64, 64),
    Case("1200 tokens, 1 head of 384", 1, 1200, 1200, 384, 384),
    Case("4800 tokens, 1 head of 384", 1, 4800, 4800, 384, 384),
]
Tensors = tuple[torch.Tensor, ...]
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention by its formula, which stores all scores."""
    scores = query.shape[-1] ** -0.5 * query @ key.mT
    output: torch.Tensor = scores.softmax(-1) @ value
    return output


CONTESTANTS: dict[str, Attention] = {
    "native": attention,
    "torch SDPA": torch.nn.functional.scaled_dot_product_attention,
    "formula": plain,
}


def tensors(case: Case) -> Tensors:
    """Return query, key, value and the gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(case.queries, case.dim), (case.keys, case.dim), (case.keys, case.value_dim)]
    shapes.append((case.queries, case.value_dim))
    return tuple(torch.randn(1, case.heads, *shape, generator=generator) for shape in shapes)


def times(function: Attention, inputs: Tensors, options: Options) -> tuple[Timing, Timing]:
    """Return the times of the forward pass and of forward and backward together."""
    query, key, value, grad = inputs
    with torch.no_grad():
        forward = measure(lambda: function(query, key, value), options.repeats)
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]

    def both() -> None:
        torch.autograd.grad(function(*leaves), leaves, grad)

    return forward, measure(both, options.repeats)


def main() -> None:
    """Run the bench."""
    options = tyro.cli(Options, description=__doc__)
    table = Table(title=f"Attention, {options.threads} threads, {_native.isa()}")
    for column in ("case", "by", "forward ms", "GFLOP/s", "forward+backward ms"):
        table.add_column(column, justify="left" if column in ("case", "by") else "right")
    for case in CASES:
        inputs = tensors(case)
        for name, function in CONTESTANTS.items():
            with native_settings(options.threads):
                if name != "native":
                    torch.set_num_threads(options.threads)
                forward, both = times(function, inputs, options)
            rate = 1e3 * case.gflop / forward.median
            cells = (f"{forward.median:.1f}", f"{rate:.0f}", f"{both.median:.1f}")
            table.add_row(case.name, name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
