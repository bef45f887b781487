"""A short test of the kernels on the synthetic room: are they right, and how fast are they?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.config import DensifyConfig, SlamConfig
from gsslam.datasets import open_dataset
from gsslam.densify import spheres_from_pixels
from gsslam.diagnosis.fact import Fact
from gsslam.errors import GsslamError
from gsslam.frame import Frame
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.losses import ImageLoss, LossWeights, image_loss_reference
from gsslam.normal_equations import (
    NormalEquationSolver,
    ResidualWeights,
    normal_equations_reference,
)
from gsslam.optimize import MapOptimizer
from gsslam.optimizer import AdamState, SphereAdam, adam_reference
from gsslam.pyramid import FrameBuffers, build_pyramid
from gsslam.raster.plan import RasterPlan
from gsslam.raster.reference import rasterize_reference
from gsslam.tracking import Tracker

_SMALL, _TIMED = (40, 30), (320, 240)
_LOW_PASS = 0.3
_WEIGHTS = LossWeights()
_RESIDUALS = ResidualWeights(0.05, 0.05, 0.01, 0.003, 0.5)
# Relative L2 distance of the kernels, float32, from their specification, float64.
_TOLERANCE = 1e-3
# Metres: how far off the pose of the next frame may be.
_POSE_TOLERANCE = 0.01
_STEPS = 10


@dataclass(frozen=True)
class _Scene:
    """Two frames of the room, and the first one's pixels as spheres (8, N)."""

    frames: tuple[Frame, Frame]
    spheres: torch.Tensor

    @property
    def camera(self) -> Camera:
        return self.frames[0].camera

    def pose(self, index: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Return T_camera_world of a frame."""
        T = self.frames[index].T_world_camera
        assert T is not None  # the room's are known
        return geometry.inverse(T)


def self_test(device: str) -> list[Fact]:
    """Render, map and track on ``device``; compare with the specification, and take the time."""
    checks: list[tuple[str, Callable[[], Fact]]] = [
        ("kernels", lambda: _compare(_scene(_SMALL), device)),
        ("speed", lambda: _time(_scene(_TIMED), device)),
    ]
    facts = []
    for name, check in checks:
        label = f"self-test, {name}, {device}"
        try:
            fact = check()
            facts.append(Fact(label, fact.value, fact.problem))
        # Whatever it is: the doctor's work is to say so.
        except (GsslamError, RuntimeError, ValueError, MemoryError) as error:
            facts.append(Fact(label, "failed", f"{type(error).__name__}: {error}"))
    return facts


def _scene(size: tuple[int, int]) -> _Scene:
    room = open_dataset("synthetic/room", resolution=size, max_frames=2)
    first, second = room[0], room[1]
    level = build_pyramid(first, 1)[0]
    everywhere = torch.ones_like(level.depth, dtype=torch.bool)
    assert first.T_world_camera is not None
    T = geometry.inverse(first.T_world_camera)
    spheres = spheres_from_pixels(
        everywhere, level.rgb, level.depth, first.camera, T, DensifyConfig()
    )
    return _Scene((first, second), spheres)


def _compare(scene: _Scene, device: str) -> Fact:
    """Compare one mapping and one tracking step with their specification."""
    errors = {**_mapping_errors(scene, device), "tracking": _tracking_error(scene, device)}
    value = ", ".join(f"{name} {error:.0e}" for name, error in errors.items())
    wrong = [name for name, error in errors.items() if not error < _TOLERANCE]
    problem = ""
    if wrong:
        problem = (
            f"{' and '.join(wrong)} differ from the specification: do not trust results on "
            f"{device}; build the native module again, and report this with `gsslam doctor`"
        )
    return Fact("", f"relative difference from the specification: {value}", problem)


def _mapping_errors(scene: _Scene, device: str) -> dict[str, float]:
    level = build_pyramid(scene.frames[1], 1)[0]
    T = torch.from_numpy(scene.pose(1))
    parameters = scene.spheres.double().requires_grad_()
    planes = rasterize_reference(parameters, T, scene.camera, _LOW_PASS)
    loss = image_loss_reference(planes, level.rgb.double(), level.depth.double(), _WEIGHTS).total
    (gradient,) = torch.autograd.grad(loss, parameters)
    rates = torch.full((len(parameters),), 1e-3, dtype=torch.float64)

    native = scene.spheres.to(device, copy=True)
    rows, count = native.shape
    plan, image_loss = RasterPlan(device=device), ImageLoss(_WEIGHTS, device)
    plan.project(native, count, scene.camera, scene.pose(1), _LOW_PASS)
    image = torch.empty(plan.image_shape, device=device)
    plan.forward(image)
    rgb, depth = level.rgb.to(device), level.depth.to(device)
    grad_image, error = torch.empty_like(image), torch.empty_like(depth)
    value = image_loss.evaluate(image, rgb, depth, gradient=grad_image, error=error)
    native_gradient = torch.zeros_like(native)
    plan.backward(image, grad_image, native_gradient)
    gradient_error = _distance(native_gradient, gradient)

    stepped, state = scene.spheres.double(), AdamState.zeros(rows, count, dtype=torch.float64)
    adam_reference(stepped, native_gradient.cpu().double(), state, rates, count)
    native_state = AdamState.zeros(rows, count, device=device)
    adam = SphereAdam(device=device)
    adam.step(native, native_gradient, native_state, rates.float().to(device), count)
    return {
        "image": _distance(image, planes.detach()),
        "loss": abs(value.total / float(loss.detach()) - 1),
        "gradient": gradient_error,
        "step": _distance(native, stepped),
    }


def _tracking_error(scene: _Scene, device: str) -> float:
    level = build_pyramid(scene.frames[1], 1)[0]
    T = scene.pose(0)
    expected = normal_equations_reference(
        scene.spheres,
        torch.from_numpy(T),
        scene.camera,
        _LOW_PASS,
        *(level.rgb, level.depth, 1.0, 0.0, _RESIDUALS),
    )
    plan, spheres = RasterPlan(device=device), scene.spheres.to(device)
    plan.project(spheres, spheres.shape[1], scene.camera, T, _LOW_PASS)
    solver = NormalEquationSolver(_RESIDUALS, device)
    found = solver.form(plan, level.rgb.to(device), level.depth.to(device), 1.0, 0.0)
    difference = np.linalg.norm(found.hessian - expected.hessian)
    return float(difference / np.linalg.norm(expected.hessian))


def _distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    difference = torch.linalg.norm(actual.detach().cpu().double() - expected)
    return float(difference / torch.linalg.norm(expected))


def _time(scene: _Scene, device: str) -> Fact:
    """Take the time of mapping steps and of tracking the second frame, and check its pose."""
    config = SlamConfig()
    count = scene.spheres.shape[1]
    gaussian_map = GaussianMap(count, device=device)
    gaussian_map.insert(scene.spheres.to(device))
    buffers = FrameBuffers(scene.camera, 1, device)
    buffers.load(scene.frames[0])
    keyframe = Keyframe(0, scene.pose(0), 1.0, 0.0, *buffers.copy_images())
    optimizer = MapOptimizer(config.mapping, scene.camera, _LOW_PASS, device)
    render = _milliseconds(lambda: optimizer.render(gaussian_map, scene.pose(0)), device)
    tasks = [(0, False)] * _STEPS
    step = _milliseconds(lambda: optimizer.run(gaussian_map, [keyframe], tasks), device) / _STEPS
    pyramid = build_pyramid(scene.frames[1], config.tracking.levels, device)
    tracker = Tracker(config.tracking, _LOW_PASS, device)

    def track() -> float:
        guess = [scene.pose(0)]
        found = tracker.estimate(gaussian_map.parameters, count, pyramid, guess, 1.0, 0.0)
        moved = found.T_camera_world @ geometry.inverse(scene.pose(1))
        return float(np.linalg.norm(moved[:3, 3]))

    off = track()
    tracking = _milliseconds(track, device)
    value = (
        f"{count:,} spheres at {scene.camera.width}x{scene.camera.height}: render {render:.1f} ms, "
        f"mapping step {step:.1f} ms, tracking {tracking:.1f} ms a frame"
    )
    problem = ""
    if not off < _POSE_TOLERANCE:
        problem = f"the next frame's pose is off by {100 * off:.1f} cm: do not trust results"
    return Fact("", value, problem)


def _milliseconds(work: Callable[[], object], device: str) -> float:
    """Return the time of the second call; the first one makes buffers."""
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - started)
