"""The native rasteriser as a PyTorch operation: differentiable, and known to torch.compile.

``torch.ops.gsslam.rasterize`` projects, sorts and blends; its backward projects anew instead of
keeping a plan alive between the two, so that both are plain functions of tensors. Loops that must
not do the work twice use RasterPlan.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.raster import constants as c
from gsslam.raster.plan import RasterPlan

_VIEW = "int width, int height, float[] intrinsics, float low_pass"
_LIBRARY = torch.library.Library("gsslam", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    f"rasterize(Tensor parameters, Tensor T_camera_world, {_VIEW}) -> Tensor"
)
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "rasterize_backward(Tensor grad_image, Tensor image, Tensor parameters, Tensor T_camera_world, "
    f"{_VIEW}) -> (Tensor, Tensor)"
)


def rasterize_native(
    parameters: torch.Tensor, T_camera_world: torch.Tensor, camera: Camera, low_pass: float
) -> torch.Tensor:
    """Return the (5 + D, H, W) planes of (8 + D, N) float32 sphere parameters."""
    intrinsics = [camera.fx, camera.fy, camera.cx, camera.cy]
    planes: torch.Tensor = torch.ops.gsslam.rasterize(
        parameters, T_camera_world, camera.width, camera.height, intrinsics, low_pass
    )
    return planes


class _Plans(threading.local):
    """A plan for each device and number of features: making one costs allocations."""

    def __init__(self) -> None:
        self._plans: dict[tuple[int, torch.device], RasterPlan] = {}

    def get(self, num_features: int, device: torch.device) -> RasterPlan:
        key = (num_features, device)
        if key not in self._plans:
            self._plans[key] = RasterPlan(num_features, device)
        return self._plans[key]


_plans = _Plans()


def _project(
    parameters: torch.Tensor,
    T_camera_world: torch.Tensor,
    width: int,
    height: int,
    intrinsics: Sequence[float],
    low_pass: float,
) -> RasterPlan:
    plan = _plans.get(parameters.shape[0] - c.ROW_FEATURE, parameters.device)
    pose = T_camera_world.detach().double().cpu().numpy()
    camera = Camera(width, height, *intrinsics)
    plan.project(parameters, parameters.shape[1], camera, pose, low_pass)
    return plan


def _rasterize(parameters: torch.Tensor, *view: Any) -> torch.Tensor:
    plan = _project(parameters.contiguous(), *view)
    image = torch.empty(plan.image_shape, device=parameters.device)
    plan.forward(image)
    plan.forget()
    return image


def _rasterize_backward(
    grad_image: torch.Tensor,
    image: torch.Tensor,
    parameters: torch.Tensor,
    T_camera_world: torch.Tensor,
    *view: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    parameters = parameters.contiguous()
    plan = _project(parameters, T_camera_world, *view)
    grad_parameters = torch.zeros_like(parameters)
    grad_pose = plan.backward(image, grad_image.contiguous(), grad_parameters)
    plan.forget()
    grad_T = torch.zeros_like(T_camera_world)
    grad_T[:3] = torch.from_numpy(grad_pose)
    return grad_parameters, grad_T


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("rasterize", _rasterize, _device)  # type: ignore[no-untyped-call]
    _LIBRARY.impl(  # type: ignore[no-untyped-call]
        "rasterize_backward", _rasterize_backward, _device
    )


def _fake_rasterize(
    parameters: torch.Tensor, T_camera_world: torch.Tensor, width: int, height: int, *_: Any
) -> torch.Tensor:
    planes = parameters.shape[0] - c.ROW_FEATURE + c.PLANE_FEATURE
    return parameters.new_empty((planes, height, width))


def _fake_rasterize_backward(
    grad_image: torch.Tensor,
    image: torch.Tensor,
    parameters: torch.Tensor,
    T_camera_world: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    return parameters.new_empty(parameters.shape), torch.empty_like(T_camera_world)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    parameters, T_camera_world, *ctx.view = inputs
    ctx.save_for_backward(output, parameters, T_camera_world)


def _differentiate(ctx: Any, grad_image: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    grads = torch.ops.gsslam.rasterize_backward(grad_image, *ctx.saved_tensors, *ctx.view)
    return (*grads, None, None, None, None)


def _save_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    pass


def _refuse(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    raise NativeError("the native rasteriser has no second derivative; use backend='reference'")


torch.library.register_fake("gsslam::rasterize", _fake_rasterize)
torch.library.register_fake("gsslam::rasterize_backward", _fake_rasterize_backward)
torch.library.register_autograd("gsslam::rasterize", _differentiate, setup_context=_save)
torch.library.register_autograd("gsslam::rasterize_backward", _refuse, setup_context=_save_nothing)
