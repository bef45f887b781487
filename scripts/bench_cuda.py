"""Time the CUDA kernels on a real scene, ours and gsplat's in one process, alternating.

Run: python scripts/bench_cuda.py --sequence /path/to/tum_fr1_xyz [--json results.json]
gsplat is timed where it is installed. It gets a plain L1 loss; our mapping step has D-SSIM in it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch.profiler import ProfilerActivity, profile

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.config import DensifyConfig, MappingConfig, TrackingConfig
from gsslam.datasets import open_dataset
from gsslam.densify import spheres_from_pixels
from gsslam.fused import FusedTracker
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.normal_equations import ResidualWeights
from gsslam.optimize import MapOptimizer
from gsslam.pyramid import ImageLevel
from gsslam.raster.plan import RasterPlan

LOW_PASS = 0.3
STEPS = 50  # of mapping in a timed run
ITERATIONS = 20  # of tracking


@dataclass
class Options:
    """What is timed."""

    sequence: Path
    dataset: str = "tum/fr1_xyz"
    # Frames of the sequence that the scene is made of; the view is between the second and third.
    frames: tuple[int, ...] = (0, 30, 60, 90)
    spheres: tuple[int, ...] = (50_000, 200_000, 500_000, 1_000_000)
    sizes: tuple[str, ...] = ("640x480", "1200x680")
    rounds: int = 9
    json: Path | None = None


@dataclass
class Scene:
    """Spheres, a camera, a pose, and what is seen from it."""

    camera: Camera
    spheres: torch.Tensor  # (8, N)
    T_camera_world: np.ndarray
    keyframe: Keyframe
    level: ImageLevel


def make_scene(options: Options, count: int, size: str) -> Scene:
    """Back-project every frame on a grid and keep ``count`` of the spheres."""
    width, height = (int(x) for x in size.split("x"))
    dataset = open_dataset(options.dataset, options.sequence, resolution=(640, 480))
    generator = torch.Generator().manual_seed(0)
    parts = []
    stride = (len(options.frames) * 640 * 480 / count) ** 0.5
    config = DensifyConfig(stride=1, radius_scale=0.8 * stride, opacity=0.8)
    for index in options.frames:
        frame = dataset[index]
        T = geometry.inverse(frame.T_world_camera)
        rgb = torch.from_numpy(frame.rgb).permute(2, 0, 1).float() / 255
        depth = torch.from_numpy(frame.depth)
        parts.append(spheres_from_pixels(depth > 0, rgb, depth, frame.camera, T, config))
    spheres = torch.cat(parts, dim=1)
    kept = torch.randperm(spheres.shape[1], generator=generator)[:count].sort().values
    spheres = spheres[:, kept]
    spheres[4] += torch.randn(spheres.shape[1], generator=generator)
    frame = dataset[(options.frames[1] + options.frames[2]) // 2]
    view = open_dataset(options.dataset, options.sequence, resolution=(640, 480)).camera
    camera = view.resized(width, height)
    rgb = torch.from_numpy(frame.rgb).cuda().permute(2, 0, 1).float() / 255
    rgb = torch.nn.functional.interpolate(rgb[None], (height, width), mode="area")[0].contiguous()
    depth = torch.from_numpy(frame.depth).cuda()[None, None]
    depth = torch.nn.functional.interpolate(depth, (height, width))[0, 0].contiguous()
    T = geometry.inverse(frame.T_world_camera)
    keyframe = Keyframe(0, T, 1.0, 0.0, (255 * rgb).byte().contiguous(), depth)
    return Scene(camera, spheres.cuda().contiguous(), T, keyframe, ImageLevel(camera, rgb, depth))


def ours(scene: Scene) -> dict[str, tuple[Callable[[], object], int]]:
    """Return each operation with the number of steps that a call takes."""
    n = scene.spheres.shape[1]
    plan, camera = RasterPlan(0, "cuda"), scene.camera
    image = torch.empty(5, camera.height, camera.width, device="cuda")
    upstream, grad = torch.rand_like(image), torch.zeros_like(scene.spheres)

    def forward() -> None:
        plan.project(scene.spheres, n, camera, scene.T_camera_world, LOW_PASS, wait=False)
        plan.forward(image)

    plan.project(scene.spheres, n, camera, scene.T_camera_world, LOW_PASS)

    def forward_backward() -> None:
        forward()
        plan.backward(image, upstream, grad)

    gaussian_map = GaussianMap(n, device="cuda")
    gaussian_map.insert(scene.spheres)
    optimizer = MapOptimizer(MappingConfig(), camera, LOW_PASS, "cuda")
    frames, tasks = [scene.keyframe], [(0, False)] * STEPS

    def mapping() -> None:
        gaussian_map.parameters.copy_(scene.spheres)
        optimizer.run(gaussian_map, frames, tasks)

    c = TrackingConfig()
    weights = ResidualWeights(c.huber_colour, c.depth_weight, 0.01, 0.003, c.silhouette_threshold)
    tracker = FusedTracker(weights, LOW_PASS, 0.01, 1e-12, (1e-4, 1e-7, 10.0), "cuda")
    start = geometry.exp_se3(np.array([4e-3, -3e-3, 4e-3, 2e-3, -3e-3, 2e-3]))

    def tracking() -> object:
        guess = [start @ scene.T_camera_world]
        return tracker.estimate(scene.spheres, n, [(scene.level, ITERATIONS)], guess, 1.0, 0.0)

    return {
        "forward": (forward, 1),
        "forward+backward": (forward_backward, 1),
        "mapping step": (mapping, STEPS),
        "tracking step": (tracking, ITERATIONS),
    }


def gsplats(scene: Scene) -> dict[str, tuple[Callable[[], object], int]]:
    """Return the same operations done with gsplat; empty where it is not installed."""
    try:
        from gsplat import rasterization
    except ImportError:
        return {}
    p, camera = scene.spheres, scene.camera
    n = p.shape[1]
    K = torch.tensor(camera.matrix(), dtype=torch.float32, device="cuda")[None]
    view = torch.tensor(scene.T_camera_world, dtype=torch.float32, device="cuda")[None]
    means, log_r = p[:3].T.contiguous().requires_grad_(), p[3].clone().requires_grad_()
    logit, rgb = p[4].clone().requires_grad_(), p[5:8].T.contiguous().requires_grad_()
    quats = torch.tensor([1.0, 0, 0, 0], device="cuda").repeat(n, 1)
    leaves = [means, log_r, logit, rgb]
    adam = torch.optim.Adam(leaves, lr=1e-9, fused=True)
    target = scene.level.rgb.permute(1, 2, 0).contiguous()
    depth = scene.level.depth
    delta = torch.zeros(1, 4, 4, device="cuda", requires_grad=True)
    pose_adam = torch.optim.Adam([delta], lr=1e-9, fused=True)

    def render(pose: torch.Tensor, track: bool = False) -> torch.Tensor:
        scales = log_r.exp()[:, None].expand(n, 3)
        arguments: list[Any] = [means, quats, scales, logit.sigmoid(), rgb]
        if track:
            arguments = [a.detach() for a in arguments]
        image, _, _ = rasterization(
            *arguments, pose, K, camera.width, camera.height, render_mode="RGB+ED",
            packed=False, rasterize_mode="antialiased",
        )  # fmt: skip
        return image[0]

    def loss(image: torch.Tensor) -> torch.Tensor:
        colour = (image[..., :3] - target).abs().mean()
        return colour + 0.2 * ((image[..., 3] - depth) * (depth > 0)).abs().mean()

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return render(view)

    def forward_backward() -> None:
        loss(render(view)).backward()
        for leaf in leaves:
            leaf.grad = None

    def mapping() -> None:
        loss(render(view)).backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    def tracking() -> None:
        loss(render(view + delta, True)).backward()
        pose_adam.step()
        pose_adam.zero_grad(set_to_none=True)

    return {
        "forward": (forward, 1),
        "forward+backward": (forward_backward, 1),
        "mapping step": (mapping, 1),
        "tracking step": (tracking, 1),
    }


def milliseconds(work: Callable[[], object], steps: int) -> float:
    """Return the time of a step, over about ten milliseconds of work."""
    repeats = 1 if steps > 1 else 10
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / (repeats * steps)


def check(scene: Scene, theirs: dict[str, tuple[Callable[[], object], int]]) -> float:
    """Return the PSNR of our image against gsplat's, in dB."""
    plan = RasterPlan(0, "cuda")
    plan.project(
        scene.spheres, scene.spheres.shape[1], scene.camera, scene.T_camera_world, LOW_PASS
    )
    image = torch.empty(plan.image_shape, device="cuda")
    plan.forward(image)
    other: Any = theirs["forward"][0]()
    return float(-10 * torch.log10((image[:3].permute(1, 2, 0) - other[..., :3]).square().mean()))


def kernel_times(work: Callable[[], object], steps: int) -> dict[str, float]:
    """Return the microseconds of a step in each kernel."""
    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    for event in profiler.key_averages():
        name = event.key.split("(anonymous namespace)::")[-1].split("(")[0]
        times[name] = times.get(name, 0) + event.device_time_total / steps
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def bench(options: Options, count: int, size: str) -> list[dict[str, Any]]:
    """Time all operations on one scene."""
    scene = make_scene(options, count, size)
    sides = {"ours": ours(scene), "gsplat": gsplats(scene)}
    psnr = check(scene, sides["gsplat"]) if sides["gsplat"] else float("nan")
    actual = scene.spheres.shape[1]
    print(f"\n{actual} spheres, {size}; our image against gsplat's: {psnr:.1f} dB")
    rows = []
    for name in sides["ours"]:
        times: dict[str, list[float]] = {side: [] for side in sides if sides[side]}
        for side in times:
            for _ in range(3):
                sides[side][name][0]()
        for _ in range(options.rounds):
            for side in times:
                times[side].append(milliseconds(*sides[side][name]))
        row: dict[str, Any] = {"spheres": actual, "size": size, "operation": name, "psnr": psnr}
        text = f"  {name:18}"
        for side, values in times.items():
            low, median, high = statistics.quantiles(values, n=4)
            row[side] = [low, median, high]
            text += f" {side} {median:7.3f} ms ({low:.3f} to {high:.3f})"
        if "gsplat" in row:
            text += f"  {row['gsplat'][1] / row['ours'][1]:.1f} times"
        print(text, flush=True)
        if name != "forward+backward":
            row["kernels_us"] = kernel_times(*sides["ours"][name])
            parts = [f"{k} {v:.1f}" for k, v in row["kernels_us"].items() if v > 0.4]
            print(f"      {sum(row['kernels_us'].values()):.0f} us in kernels: " + ", ".join(parts))
        rows.append(row)
    return rows


def main() -> None:
    """Run the benchmark."""
    options = tyro.cli(Options, description=__doc__)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows = [r for s in options.sizes for n in options.spheres for r in bench(options, n, s)]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
