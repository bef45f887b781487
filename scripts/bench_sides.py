"""The operations that the rasteriser's bench times, done by our kernels and by gsplat.

Our mapping step has D-SSIM in its loss, gsplat's only L1 and depth; both end with Adam. Our
tracking step is an iteration of Gauss-Newton, gsplat's one of Adam on the pose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gsslam import _native, geometry
from gsslam.config import MappingConfig, TrackingConfig
from gsslam.fused import FusedTracker
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.normal_equations import NormalEquationSolver, ResidualWeights
from gsslam.optimize import MapOptimizer
from gsslam.pyramid import ImageLevel
from gsslam.raster.plan import RasterPlan
from scripts.bench_scenes import Scene

LOW_PASS = 0.3
MAPPING_STEPS, TRACKING_STEPS = 50, 20  # of a timed call on CUDA

Call = Callable[[], object]


@dataclass(frozen=True)
class Operation:
    """Some work, and the number of steps that a call of it takes."""

    call: Call
    steps: int = 1


Operations = dict[str, Operation]


def _seen(scene: Scene, device: str) -> ImageLevel:
    if scene.seen is None:
        raise ValueError(f"{scene.name} has no image to compare with")
    return ImageLevel(scene.camera, scene.seen.rgb.to(device), scene.seen.depth.to(device))


def native_operations(scene: Scene, device: str) -> Operations:
    """Return our operations on "cuda" or "cpu"."""
    return {
        **rendering_operations(scene, device),
        "mapping step": _mapping(scene, device),
        "tracking step": _tracking(scene, device),
    }


def rendering_operations(scene: Scene, device: str) -> Operations:
    """Return those that need no image to compare with."""
    spheres, camera = scene.spheres.to(device), scene.camera
    plan = RasterPlan(0, device)
    image = torch.empty(5, camera.height, camera.width, device=device)
    upstream, grad = torch.rand_like(image), torch.zeros_like(spheres)
    plan.project(spheres, scene.count, camera, scene.T_camera_world, LOW_PASS)  # makes room

    def forward() -> None:
        plan.project(spheres, scene.count, camera, scene.T_camera_world, LOW_PASS, wait=False)
        plan.forward(image)

    def forward_backward() -> None:
        forward()
        plan.backward(image, upstream, grad)

    return {"forward": Operation(forward), "forward+backward": Operation(forward_backward)}


def _mapping(scene: Scene, device: str) -> Operation:
    spheres, seen = scene.spheres.to(device), _seen(scene, device)
    gaussian_map = GaussianMap(scene.count, device=device)
    gaussian_map.insert(spheres)
    optimizer = MapOptimizer(MappingConfig(), scene.camera, LOW_PASS, device)
    rgb = (255 * seen.rgb).byte().contiguous()
    frames = [Keyframe(0, scene.T_camera_world, 1.0, 0.0, rgb, seen.depth)]
    steps = MAPPING_STEPS if device == "cuda" else 1

    def mapping() -> None:
        gaussian_map.parameters.copy_(spheres)
        optimizer.run(gaussian_map, frames, [(0, False)] * steps)

    return Operation(mapping, steps)


def _tracking(scene: Scene, device: str) -> Operation:
    spheres, seen = scene.spheres.to(device), _seen(scene, device)
    c = TrackingConfig()
    weights = ResidualWeights(c.huber_colour, c.depth_weight, 0.01, 0.003, c.silhouette_threshold)
    start = geometry.exp_se3(np.array([4e-3, -3e-3, 4e-3, 2e-3, -3e-3, 2e-3]))
    guess = start @ scene.T_camera_world
    if device == "cuda":
        tracker = FusedTracker(weights, LOW_PASS, 0.01, 1e-12, (1e-4, 1e-7, 10.0), device)
        levels = [(seen, TRACKING_STEPS)]
        return Operation(
            lambda: tracker.estimate(spheres, scene.count, levels, [guess], 1.0, 0.0),
            TRACKING_STEPS,
        )
    plan, solver = RasterPlan(), NormalEquationSolver(weights)

    def tracking() -> None:
        plan.project(spheres, scene.count, scene.camera, guess, LOW_PASS)
        solver.form(plan, seen.rgb, seen.depth, 1.0, 0.0)

    return Operation(tracking)


def gsplat_operations(scene: Scene) -> Operations:
    """Return gsplat's; empty where it or a GPU is missing."""
    try:
        import gsplat  # noqa: F401
    except ImportError:
        return {}
    if _native.cuda_problem():
        return {}
    side = _Gsplat(scene)
    return {
        "forward": Operation(side.forward),
        "forward+backward": Operation(side.forward_backward),
        "mapping step": Operation(side.mapping),
        "tracking step": Operation(side.tracking),
    }


class _Gsplat:
    """A scene as gsplat takes it."""

    def __init__(self, scene: Scene) -> None:
        p = scene.spheres.cuda()
        self.camera, self.seen = scene.camera, _seen(scene, "cuda")
        self.K = torch.tensor(scene.camera.matrix(), dtype=torch.float32, device="cuda")[None]
        self.view = torch.tensor(scene.T_camera_world, dtype=torch.float32, device="cuda")[None]
        self.quats = torch.tensor([1.0, 0, 0, 0], device="cuda").repeat(scene.count, 1)
        parts = [p[:3].T, p[3], p[4], p[5:8].T]
        self.leaves = [part.clone().contiguous().requires_grad_() for part in parts]
        self.adam = torch.optim.Adam(self.leaves, lr=1e-9, fused=True)
        self.delta = torch.zeros(1, 4, 4, device="cuda", requires_grad=True)
        self.pose_adam = torch.optim.Adam([self.delta], lr=1e-9, fused=True)
        self.target = self.seen.rgb.permute(1, 2, 0).contiguous()

    def render(self, pose: torch.Tensor, leaves: list[torch.Tensor]) -> torch.Tensor:
        from gsplat import rasterization

        means, log_r, logit, rgb = leaves
        scales = log_r.exp()[:, None].expand(-1, 3)
        image: Any = rasterization(
            means, self.quats, scales, logit.sigmoid(), rgb, pose, self.K,
            self.camera.width, self.camera.height, render_mode="RGB+ED",
            packed=False, rasterize_mode="antialiased",
        )[0]  # fmt: skip
        planes: torch.Tensor = image[0]
        return planes

    def loss(self, image: torch.Tensor) -> torch.Tensor:
        depth = self.seen.depth
        off = (image[..., 3] - depth) * (depth > 0)
        return (image[..., :3] - self.target).abs().mean() + 0.2 * off.abs().mean()

    def forward(self) -> torch.Tensor:
        with torch.no_grad():
            return self.render(self.view, self.leaves)

    def forward_backward(self) -> None:
        self.loss(self.render(self.view, self.leaves)).backward()  # type: ignore[no-untyped-call]
        for leaf in self.leaves:
            leaf.grad = None

    def mapping(self) -> None:
        self.loss(self.render(self.view, self.leaves)).backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)

    def tracking(self) -> None:
        image = self.render(self.view + self.delta, [leaf.detach() for leaf in self.leaves])
        self.loss(image).backward()  # type: ignore[no-untyped-call]
        self.pose_adam.step()
        self.pose_adam.zero_grad(set_to_none=True)
