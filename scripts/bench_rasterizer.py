"""Time the rasteriser, the mapping step and the tracking step: our CUDA kernels, gsplat's, the CPU.

Run: python -m scripts.bench_rasterizer [--sequence .../tum_fr1_xyz --json results.json]
With a sequence, all sides that this machine has are timed in turn on its back-projected frames, and
outputs are compared before. Without, the CPU's kernels are, by instruction set and threads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from gsslam import _native, open_dataset
from gsslam.datasets.base import Dataset
from gsslam.errors import GsslamError
from gsslam.normal_equations import NormalEquationSolver, ResidualWeights
from gsslam.raster.constants import STAT_PIXELS, STATISTICS
from gsslam.raster.plan import RasterPlan
from scripts.bench_scenes import (
    Scene,
    back_projected_scene,
    crowded_scene,
    mapped_scene,
    room_like_scene,
)
from scripts.bench_sides import (
    LOW_PASS,
    Operations,
    gsplat_operations,
    native_operations,
    rendering_operations,
)
from scripts.kernel_floors import count, floors, kernel_times
from scripts.timing import INSTRUCTION_SETS, alternate, measure, native_settings

# Largest differences between our two sides, and least PSNR against gsplat's image, whose affine
# approximation is no circle.
MOST_IMAGE_ERROR, MOST_GRADIENT_ERROR, LEAST_PSNR = 2e-3, 2e-3, 30.0


@dataclass(frozen=True)
class Options:
    """What is timed."""

    # Folder of TUM's fr1/xyz.
    sequence: Path | None = None
    # Frames that the scene is made of; the view is between the second and third.
    frames: tuple[int, ...] = (0, 30, 60, 90)
    # How many spheres the scenes have.
    spheres: tuple[int, ...] = (50_000, 200_000, 500_000, 1_000_000)
    # Sizes of the images in pixels.
    sizes: tuple[str, ...] = ("640x480", "1200x680")
    # Timed rounds on the GPU; a third of them on the CPU.
    rounds: int = 9
    # File for the results.
    json: Path | None = None
    # Without a sequence: timed calls of the CPU's kernels, ...
    repeats: int = 20
    # ... numbers of threads, ...
    threads: tuple[int, ...] = (1, 2)
    # ... and instruction sets.
    isas: tuple[str, ...] = INSTRUCTION_SETS


def render(scene: Scene, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the image and the gradient of a fixed sum of it, on the CPU."""
    plan, spheres = RasterPlan(0, device), scene.spheres.to(device)
    plan.project(spheres, scene.count, scene.camera, scene.T_camera_world, LOW_PASS)
    image = torch.empty(plan.image_shape, device=device)
    plan.forward(image)
    upstream = torch.randn(plan.image_shape, generator=torch.Generator().manual_seed(1))
    grad = torch.zeros_like(spheres)
    plan.backward(image, upstream.to(device), grad)
    return image.cpu(), grad.cpu()


def validate(scene: Scene, gsplats: Operations) -> dict[str, float]:
    """Compare the sides' outputs; raises GsslamError where they differ by too much."""
    image, grad = render(scene, "cuda")
    cpu_image, cpu_grad = render(scene, "cpu")
    rms = float((image - cpu_image).square().mean().sqrt())
    rows = (grad - cpu_grad).norm(dim=1) / cpu_grad.norm(dim=1)
    found = {"image_rms": rms, "gradient": float(rows.max()), "psnr": float("inf")}
    if gsplats:
        other: Any = gsplats["forward"].call()
        difference = image[:3].permute(1, 2, 0) - other[..., :3].cpu()
        found["psnr"] = float(-10 * torch.log10(difference.square().mean()))
    if not (
        rms < MOST_IMAGE_ERROR
        and found["gradient"] < MOST_GRADIENT_ERROR
        and found["psnr"] > LEAST_PSNR
    ):
        raise GsslamError(f"{scene.title()}: outputs differ, nothing was timed: {found}")
    return found


def compare(scene: Scene, options: Options) -> list[dict[str, Any]]:
    """Time every operation on every side."""
    sides: dict[str, Operations] = {"cpu": native_operations(scene, "cpu")}
    found: dict[str, float] = {}
    if not _native.cuda_problem():
        gsplats = gsplat_operations(scene)
        found = validate(scene, gsplats)
        sides = {"ours": native_operations(scene, "cuda"), "gsplat": gsplats} | sides
    print(f"\n{scene.title()}; outputs: {found}", flush=True)
    rows = []
    for name in sides["cpu"]:
        on_gpu = {s: o[name] for s, o in sides.items() if s != "cpu" and o}
        timings = alternate(on_gpu, options.rounds)
        with native_settings(_native.thread_count()):
            timings |= alternate({"cpu": sides["cpu"][name]}, max(2, options.rounds // 3))
        row: dict[str, Any] = {
            "spheres": scene.count,
            "size": f"{scene.camera.width}x{scene.camera.height}",
        }
        row |= {"operation": name} | {s: asdict(t) for s, t in timings.items()} | found
        text = [f"{s} {' ms ('.join(t.cells())})" for s, t in timings.items()]
        if "gsplat" in timings:
            text.append(f"{timings['gsplat'].median / timings['ours'].median:.1f} times")
        print(f"  {name:17}", "; ".join(text), flush=True)
        rows.append(row)
    return rows


def profile_kernels(scene: Scene) -> Table:
    """Return a table of the fused steps' kernels against what they must at least do."""
    lowest = floors(count(scene))
    operations = native_operations(scene, "cuda")
    table = Table(title=f"kernels, {scene.title()}")
    for column in ("step", "kernel", "us", "floor us", "MB"):
        table.add_column(column, no_wrap=True)
    for step in ("mapping step", "tracking step"):
        times = kernel_times(operations[step])
        for name, us in times.items():
            floor = next((f for start, f in lowest.items() if name.startswith(start)), None)
            cells = (f"{floor.microseconds():.1f}", f"{floor.bytes / 1e6:.1f}") if floor else ()
            if us > 0.4:
                table.add_row(step, name, f"{us:.1f}", *cells)
        table.add_row(step, "sum", f"{sum(times.values()):.1f}")
        table.add_section()
    return table


def crowded_table(rounds: int) -> Table:
    """Return a table of scenes whose long lists are cut in depth."""
    table = Table(title="crowded scenes, 640x480")
    for column in ("scene", "forward ms", "forward+backward ms"):
        table.add_column(column, no_wrap=True)
    for name, count_, size, logit in [
        ("200,000 on 5 %, opaque", 200_000, (143, 107), 1.4),
        ("200,000 on 5 %, faint", 200_000, (143, 107), -3.0),
        ("20,000 on a tile, opaque", 20_000, (14, 14), 1.4),
        ("20,000 on a tile, faint", 20_000, (14, 14), -4.0),
    ]:
        scene = crowded_scene(name, count_, size, logit)
        validate(scene, {})
        rendering = rendering_operations(scene, "cuda").values()
        timings = [alternate({"ours": o}, rounds)["ours"].cells()[0] for o in rendering]
        table.add_row(name, *timings)
    return table


def cpu_kernels(scene: Scene) -> tuple[dict[str, Callable[[], object]], int]:
    """Return the work to time, by name, and the (sphere, pixel) pairs that an image blends."""
    plan, pose = RasterPlan(), scene.T_camera_world
    plan.project(scene.spheres, scene.count, scene.camera, pose)
    image = torch.empty(plan.image_shape)
    plan.forward(image)
    depth = (image[3] / image[4].clamp(min=1e-6)).contiguous()
    rgb = image[:3].clone() + 0.02
    upstream, gradient = torch.randn(image.shape), torch.zeros_like(scene.spheres)
    statistics = torch.zeros(STATISTICS, scene.count)
    plan.backward(image, upstream, gradient, torch.ones_like(depth), statistics)
    solver = NormalEquationSolver(ResidualWeights(0.05, 0.05, 0.01, 0.003, 0.7))
    work: dict[str, Callable[[], object]] = {
        "project, sort, bin": lambda: plan.project(scene.spheres, scene.count, scene.camera, pose),
        "forward": lambda: plan.forward(image),
        "backward": lambda: plan.backward(image, upstream, gradient),
        "normal equations": lambda: solver.form(plan, rgb, depth, 1.0, 0.0),
    }
    return work, int(statistics[STAT_PIXELS].sum())


def cpu_table(scene: Scene, options: Options) -> Table:
    """Return the CPU's table of one scene."""
    work, pairs = cpu_kernels(scene)
    table = Table(title=f"{scene.title()}, {pairs / 1e6:.1f} million blended pairs")
    for column in ("kernel", "isa"):
        table.add_column(column, no_wrap=True)
    for column in ("threads", "median ms", "quartiles ms", "Mpairs/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, call in work.items():
        for isa in options.isas:
            for threads in options.threads:
                with native_settings(threads, isa) as is_available:
                    if not is_available:
                        continue
                    timing = measure(call, options.repeats)
                rate = "" if name.startswith("project") else f"{pairs / timing.median / 1e3:,.0f}"
                table.add_row(name, isa, str(threads), *timing.cells(), rate)
        table.add_section()
    return table


def compare_sides(dataset: Dataset, options: Options, console: Console) -> None:
    """Time all sides on all scenes of a sequence, and profile the kernels on one."""
    scene = back_projected_scene(dataset, options.frames, 200_000, (640, 480))
    console.print(profile_kernels(scene))
    console.print(crowded_table(options.rounds))
    rows: list[dict[str, Any]] = []
    for size in options.sizes:
        width, height = (int(x) for x in size.split("x"))
        for number in options.spheres:
            scene = back_projected_scene(dataset, options.frames, number, (width, height))
            rows += compare(scene, options)
            if options.json:  # after each scene, so that a run that is stopped leaves some
                options.json.write_text(json.dumps(rows, indent=1))


def main() -> None:
    """Run the bench."""
    options = tyro.cli(Options, description=__doc__)
    torch.set_num_threads(1)
    console = Console(width=100)
    if options.sequence is None:
        for scene in (room_like_scene(320, 240, 30_000), room_like_scene(640, 480, 200_000)):
            console.print(cpu_table(scene, options))
        return
    if not _native.cuda_problem():
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
        dataset = open_dataset("tum/fr1_xyz", options.sequence, resolution=(640, 480))
        compare_sides(dataset, options, console)
        return
    console.print(cpu_table(mapped_scene(options.sequence, 320, 240, 30_000), options))


if __name__ == "__main__":
    main()
