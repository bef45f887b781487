"""What the CUDA kernels of a step must at least move and issue, and the time that takes.

Counts follow from the projected circles and the blended pairs; numbers of list items are the
expected ones for circles at random places.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi

import torch
from torch.profiler import ProfilerActivity, profile

from gsslam.raster.constants import MIN_ALPHA, STAT_PIXELS, STATISTICS
from gsslam.raster.plan import RasterPlan
from scripts.bench_scenes import Scene
from scripts.bench_sides import LOW_PASS, Operation

# Of one H200: bytes copied, and warp instructions issued by 132 x 4 schedulers at 1.98 GHz.
BYTES_PER_US = 4.3e6
INSTRUCTIONS_PER_US = 1.045e6
# Fewest instructions for a (sphere, pixel) pair: blending, its gradient, normal equations.
FORWARD, BACKWARD, EQUATIONS = 20, 45, 80


@dataclass(frozen=True)
class Counts:
    """How much there is in a view."""

    spheres: int
    visible: int
    entries: float  # of (sphere, tile) pairs
    items: float  # of (sphere, cell) pairs
    pairs: int  # of spheres and pixels that were blended
    pixels: int


@dataclass(frozen=True)
class Floor:
    """What a kernel must do."""

    bytes: float
    instructions: float = 0.0

    def microseconds(self) -> float:
        """Return the time of the slower of the two."""
        return max(self.bytes / BYTES_PER_US, self.instructions / INSTRUCTIONS_PER_US)


def _reached(radius: torch.Tensor, width: int, height: int) -> float:
    """Return how many boxes of that size circles reach, on average over places."""
    area = width * height
    hits = 1 + 2 * radius * (width + height) / area + pi * radius**2 / area
    return float(hits.sum())


def count(scene: Scene) -> Counts:
    """Count what is in a scene, on the CPU."""
    spheres, camera = scene.spheres.cpu(), scene.camera
    plan = RasterPlan()
    plan.project(spheres, scene.count, camera, scene.T_camera_world, LOW_PASS)
    image = torch.empty(plan.image_shape)
    plan.forward(image)
    statistics = torch.zeros(STATISTICS, scene.count)
    plan.backward(
        image,
        torch.zeros_like(image),
        torch.zeros_like(spheres),
        torch.ones_like(image[0]),
        statistics,
    )
    T = torch.from_numpy(scene.T_camera_world).float()
    x, y, z = T[:3, :3] @ spheres[:3] + T[:3, 3:]
    variance = (camera.fx * spheres[3].exp() / z).square()
    opacity = spheres[4].sigmoid() * variance / (variance + LOW_PASS)
    square = 2 * (variance + LOW_PASS) * (opacity.log() - log(MIN_ALPHA))
    u, v = camera.fx * x / z + camera.cx, camera.fy * y / z + camera.cy
    radius = square.clamp(min=0).sqrt()
    visible = (z > 0.01) & (square > 0)
    visible &= (u > -radius) & (u < camera.width + radius)
    visible &= (v > -radius) & (v < camera.height + radius)
    radius = radius[visible]
    pixels = camera.width * camera.height
    return Counts(
        scene.count,
        int(visible.sum()),
        _reached(radius, 16, 16),
        _reached(radius, 8, 4),
        int(statistics[STAT_PIXELS].sum()),
        pixels,
    )


def floors(c: Counts) -> dict[str, Floor]:
    """Return the floor of each kernel that has one, by the start of its name."""
    warps = c.pairs / 32
    return {
        "project_spheres": Floor(20 * c.spheres + 60 * c.visible),
        "refresh_spheres": Floor(24 * c.spheres + 100 * c.visible),
        "fill_tiles": Floor(44 * c.visible + 12 * c.entries),
        "sort_short_lists": Floor(12 * c.entries + 8 * c.items),
        "blend_forward": Floor(40 * c.items + 20 * c.pixels, FORWARD * warps),
        "map_ssim_derivatives": Floor(55 * c.pixels),
        "loss_gradient": Floor(83 * c.pixels),
        "blend_backward": Floor(72 * c.items + 40 * c.pixels, BACKWARD * warps),
        "step_seen_spheres": Floor(32 * c.items + 240 * c.visible),
        "form_normal_equations": Floor(72 * c.items + 16 * c.pixels, EQUATIONS * warps),
    }


def kernel_times(operation: Operation) -> dict[str, float]:
    """Return the microseconds of a step in each kernel, longest first."""
    operation.call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        operation.call()
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    for event in profiler.key_averages():
        name = event.key.split("(anonymous namespace)::")[-1].split("(")[0].split("<")[0]
        times[name] = times.get(name, 0) + event.device_time_total / operation.steps
    return dict(sorted(times.items(), key=lambda item: -item[1]))
