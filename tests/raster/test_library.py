"""The rasteriser as torch sees it: schema, fake kernel, autograd, torch.compile."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gsslam.errors import NativeError
from gsslam.raster.native import rasterize_native
from tests.raster.scenes import CAMERA, random_pose, random_spheres


def test_passes_opcheck(device: str) -> None:
    rng = np.random.default_rng(1)
    spheres = random_spheres(rng, 40, num_features=2).to(device).requires_grad_()
    T = random_pose(rng).to(device).requires_grad_()
    intrinsics = [CAMERA.fx, CAMERA.fy, CAMERA.cx, CAMERA.cy]
    arguments = (spheres, T, CAMERA.width, CAMERA.height, intrinsics, 0.3)
    results = torch.library.opcheck(torch.ops.gsslam.rasterize.default, arguments)
    assert set(results.values()) == {"SUCCESS"}


def test_runs_under_torch_compile(device: str) -> None:
    rng = np.random.default_rng(2)
    spheres, T = random_spheres(rng, 60).to(device), random_pose(rng)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return rasterize_native(2 * x, T, CAMERA, 0.3).square().sum()

    grads = []
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        x = spheres.clone().requires_grad_()
        function(x).backward()
        grads.append(x.grad)
    assert grads[0].any()
    torch.testing.assert_close(*grads)


def test_has_no_second_derivative() -> None:
    spheres = random_spheres(np.random.default_rng(3), 5).requires_grad_()
    planes = rasterize_native(spheres, torch.eye(4), CAMERA, 0.3)
    (grad,) = torch.autograd.grad(planes.sum(), spheres, create_graph=True)
    with pytest.raises(NativeError, match="no second derivative"):
        torch.autograd.grad(grad.sum(), spheres)
