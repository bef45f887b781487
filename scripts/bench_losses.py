"""Time the native mapping loss and Adam on the CPU, with torch's autograd of the same loss beside.

Run: python scripts/bench_losses.py [--width 320 --height 240 --spheres 30000]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import tyro

from gsslam import _native
from gsslam.losses import ImageLoss, LossWeights, image_loss_reference
from gsslam.optimizer import AdamState, SphereAdam


@dataclass
class Options:
    """What is timed."""

    width: int = 320
    height: int = 240
    spheres: int = 30_000
    repeats: int = 40


def milliseconds(work: Callable[[], object], repeats: int) -> str:
    """Return the median and the central half of the times of ``work``, the first runs left out."""
    times = []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    low, median, high = statistics.quantiles(times[3:], n=4)
    return f"{median:8.3f} ms   (quartiles {low:.3f} to {high:.3f})"


def compare(
    name: str, native: Callable[[], object], theirs: Callable[[], object], repeats: int
) -> None:
    """Print the times of our work and of torch's, with one thread and with two."""
    for threads in (1, 2):
        _native.set_thread_count(threads)
        torch.set_num_threads(1)  # torch's idle threads spin, which would slow ours
        print(f"{name:38} {threads} threads  native {milliseconds(native, repeats)}")
        torch.set_num_threads(threads)
        print(f"{name:38} {threads} threads  torch  {milliseconds(theirs, repeats)}")


def bench_loss(options: Options) -> None:
    """Print the times of the loss with its gradient."""
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

        compare(f"{name}, {width}x{height}", native, autograd, options.repeats)


def bench_adam(options: Options) -> None:
    """Print the times of a step where all, half or none of the spheres have a gradient."""
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

        compare(f"Adam, {count} spheres, {share:.0%} seen", native, dense, options.repeats)


def main() -> None:
    """Run the benches."""
    options = tyro.cli(Options, description=__doc__)
    print(f"instruction set: {_native.isa()}")
    bench_loss(options)
    bench_adam(options)


if __name__ == "__main__":
    main()
