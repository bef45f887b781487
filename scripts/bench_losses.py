"""Time the native mapping loss and Adam on the CPU, with torch's autograd of the same loss beside.

Run: python -m scripts.bench_losses [--width 320 --height 240 --spheres 30000]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import tyro
from rich.console import Console
from rich.table import Table

from gsslam import _native
from gsslam.losses import ImageLoss, LossWeights, image_loss_reference
from gsslam.optimizer import AdamState, SphereAdam
from scripts.timing import measure, native_settings


@dataclass
class Options:
    """What is timed."""

    width: int = 320
    height: int = 240
    spheres: int = 30_000
    repeats: int = 40


def compare(
    table: Table,
    name: str,
    native: Callable[[], object],
    theirs: Callable[[], object],
    repeats: int,
) -> None:
    """Add the times of our work and of torch's to ``table``, with one thread and with two."""
    for threads in (1, 2):
        with native_settings(threads):
            table.add_row(name, "native", str(threads), *measure(native, repeats).cells())
            torch.set_num_threads(threads)
            table.add_row(name, "torch", str(threads), *measure(theirs, repeats).cells())


def bench_loss(table: Table, options: Options) -> None:
    """Add the times of the loss with its gradient."""
    height, width = options.height, options.width
    generator = torch.Generator().manual_seed(0)
    rendered = torch.rand(5, height, width, generator=generator)
    colour = torch.rand(3, height, width, generator=generator)
    depth = 3 * torch.rand(height, width, generator=generator)
    gradient, error = torch.empty_like(rendered), torch.empty_like(depth)
    weights = LossWeights(ssim=0.2, depth=0.1, silhouette=0.01)
    for name, w in [("L1 + D-SSIM + depth", weights), ("L1 + depth", replace(weights, ssim=0.0))]:
        loss = ImageLoss(w)

        def native(loss: ImageLoss = loss) -> None:
            loss.evaluate(rendered, colour, depth, gradient=gradient, error=error, gain=1.1)

        def autograd(w: LossWeights = w) -> None:
            leaf = rendered.detach().requires_grad_()
            gain = torch.tensor(1.1, requires_grad=True)
            image_loss_reference(leaf, colour, depth, w, gain=gain).total.backward()  # type: ignore[no-untyped-call]

        compare(table, f"{name}, {width}x{height}", native, autograd, options.repeats)


def bench_adam(table: Table, options: Options) -> None:
    """Add the times of a step where all, half or none of the spheres have a gradient."""
    count = options.spheres
    shape = (8, count)
    parameters, state, rates = torch.zeros(shape), AdamState.zeros(*shape), torch.full((8,), 1e-3)
    adam = SphereAdam()
    for share in (1.0, 0.5, 0.0):
        touched = (torch.rand(count, generator=torch.Generator().manual_seed(0)) < share).float()
        source, gradient = torch.ones(shape) * touched, torch.empty(shape)
        leaf = torch.nn.Parameter(torch.zeros(shape))
        theirs = torch.optim.Adam([leaf], lr=1e-3, eps=1e-15)

        def native(source: torch.Tensor = source, gradient: torch.Tensor = gradient) -> None:
            gradient.copy_(source)
            adam.step(parameters, gradient, state, rates, count)

        def dense(
            source: torch.Tensor = source,
            leaf: torch.nn.Parameter = leaf,
            theirs: torch.optim.Adam = theirs,
        ) -> None:
            leaf.grad = source.clone()
            theirs.step()

        compare(table, f"Adam, {count} spheres, {share:.0%} seen", native, dense, options.repeats)


def main() -> None:
    """Run the benches."""
    options = tyro.cli(Options, description=__doc__)
    table = Table(title=f"Loss and Adam, instruction set {_native.isa()}")
    for column in ("work", "by", "threads", "median ms", "quartiles ms"):
        table.add_column(column, justify="right" if column[-1] == "s" else "left")
    bench_loss(table, options)
    bench_adam(table, options)
    Console().print(table)


if __name__ == "__main__":
    main()
