"""Time the native CPU kernels: projection, forward, backward and tracking's normal equations.

Run: python -m scripts.bench_rasterizer [--sequence .../tum_fr1_xyz --threads 1 2 --isas avx2]
With a sequence, a map that SLAM made of it is timed too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gsslam import Slam, SlamConfig, open_dataset
from gsslam.camera import Camera
from gsslam.normal_equations import NormalEquationSolver, ResidualWeights
from gsslam.raster.constants import STAT_PIXELS, STATISTICS
from gsslam.raster.plan import RasterPlan
from scripts.timing import INSTRUCTION_SETS, measure, native_settings


@dataclass(frozen=True)
class Options:
    """What is timed."""

    # Timed calls of each kernel.
    repeats: int = 20
    threads: tuple[int, ...] = (1, 2)
    isas: tuple[str, ...] = INSTRUCTION_SETS
    # Folder of TUM's fr1/xyz.
    sequence: Path | None = None


@dataclass(frozen=True)
class Scene:
    """A camera, and spheres that cover what it sees."""

    name: str
    camera: Camera
    spheres: torch.Tensor  # (8, N)
    T_camera_world: NDArray[np.float64]

    def title(self) -> str:
        """Return what the table is called."""
        size = f"{self.camera.width}x{self.camera.height}"
        return f"{self.name}, {size}, {self.spheres.shape[1]:,} spheres"


def room_like_scene(width: int, height: int, count: int, seed: int = 0) -> Scene:
    """Return spheres as a map has them: on surfaces, their size about their distance apart."""
    rng = np.random.default_rng(seed)
    camera = Camera(width, height, 0.87 * width, 0.87 * width, width / 2, height / 2)
    u, v = rng.uniform(0, width, count), rng.uniform(0, height, count)
    # A wavy wall at one to three metres, and a few centimetres of scatter.
    z = 2 + np.sin(7 * u / width) * np.cos(5 * v / height) + 0.03 * rng.normal(size=count)
    spacing = np.sqrt(width * height / count)  # pixels
    radius = spacing * z / camera.fx * np.exp(0.4 * rng.normal(size=count))
    rows = [
        (u - camera.cx) / camera.fx * z,
        (v - camera.cy) / camera.fy * z,
        z,
        np.log(radius),
        1 + rng.normal(size=count),
        *rng.uniform(0, 1, (3, count)),
    ]
    spheres = torch.from_numpy(np.stack(rows).astype(np.float32))
    return Scene("wavy wall", camera, spheres, np.eye(4))


def mapped_scene(sequence: Path, width: int, height: int, count: int) -> Scene:
    """Return the first ``count`` spheres of a map of fr1/xyz, seen by its newest keyframe."""
    dataset = open_dataset("tum/fr1_xyz", sequence, resolution=(width, height))
    slam = Slam(SlamConfig(), dataset.camera)
    for index in range(len(dataset)):
        slam.track(dataset[index])
        if slam.map.count >= count:
            break
    spheres = slam.map.live[:, :count].contiguous()
    return Scene("map of fr1/xyz", dataset.camera, spheres, slam.keyframes[-1].T_camera_world)


def kernels(scene: Scene) -> tuple[dict[str, Callable[[], object]], int]:
    """Return the work to time, by name, and the (sphere, pixel) pairs that an image blends."""
    plan, pose, count = RasterPlan(), scene.T_camera_world, scene.spheres.shape[1]
    plan.project(scene.spheres, count, scene.camera, pose)
    image = torch.empty(plan.image_shape)
    plan.forward(image)
    depth = (image[3] / image[4].clamp(min=1e-6)).contiguous()
    rgb = image[:3].clone() + 0.02
    upstream, gradient = torch.randn(image.shape), torch.zeros_like(scene.spheres)
    statistics = torch.zeros(STATISTICS, count)
    plan.backward(image, upstream, gradient, torch.ones_like(depth), statistics)
    solver = NormalEquationSolver(ResidualWeights(0.05, 0.05, 0.01, 0.003, 0.7))
    work: dict[str, Callable[[], object]] = {
        "project, sort, bin": lambda: plan.project(scene.spheres, count, scene.camera, pose),
        "forward": lambda: plan.forward(image),
        "backward": lambda: plan.backward(image, upstream, gradient),
        "normal equations": lambda: solver.form(plan, rgb, depth, 1.0, 0.0),
    }
    return work, int(statistics[STAT_PIXELS].sum())


def bench(scene: Scene, options: Options) -> Table:
    """Return the table of one scene."""
    work, pairs = kernels(scene)
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


def main() -> None:
    """Run the bench."""
    options = tyro.cli(Options, description=__doc__)
    torch.set_num_threads(1)
    scenes = [room_like_scene(320, 240, 30_000), room_like_scene(640, 480, 200_000)]
    if options.sequence is not None:
        scenes.insert(0, mapped_scene(options.sequence, 320, 240, 30_000))
    for scene in scenes:
        Console(width=100).print(bench(scene, options))


if __name__ == "__main__":
    main()
