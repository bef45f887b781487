"""The native rasteriser as a differentiable PyTorch operation."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from gsslam.camera import Camera
from gsslam.raster import constants as c
from gsslam.raster.plan import RasterPlan


class _Rasterize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        parameters: torch.Tensor,
        T_camera_world: torch.Tensor,
        camera: Camera,
        low_pass: float,
    ) -> torch.Tensor:
        num_features = parameters.shape[0] - c.ROW_FEATURE
        plan = RasterPlan(num_features, parameters.device)
        shape = (c.PLANE_FEATURE + num_features, camera.height, camera.width)
        image = torch.empty(shape, device=parameters.device)
        pose = T_camera_world.detach().double().cpu().numpy()
        plan.project(parameters, parameters.shape[1], camera, pose, low_pass)
        plan.forward(image)
        ctx.plan = plan
        ctx.pose_like = T_camera_world.detach()
        ctx.save_for_backward(parameters, image)
        return image

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_image: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        parameters, image = ctx.saved_tensors
        grad_parameters = torch.zeros_like(parameters)
        grad_pose = ctx.plan.backward(image, grad_image.contiguous(), grad_parameters)
        grad_T = torch.zeros_like(ctx.pose_like)
        grad_T[:3] = torch.from_numpy(grad_pose)
        return grad_parameters, grad_T, None, None


def rasterize_native(
    parameters: torch.Tensor, T_camera_world: torch.Tensor, camera: Camera, low_pass: float
) -> torch.Tensor:
    """Return the (5 + D, H, W) planes of (8 + D, N) float32 sphere parameters."""
    planes: torch.Tensor = _Rasterize.apply(  # type: ignore[no-untyped-call]
        parameters.contiguous(), T_camera_world, camera, low_pass
    )
    return planes
