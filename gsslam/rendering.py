"""Pictures of the map, for evaluation and for people."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.raster.interface import Rendering
from gsslam.raster.plan import RasterPlan
from gsslam.results import RenderedView, SphereState


def render_view(
    parameters: torch.Tensor,
    count: int,
    camera: Camera,
    T_world_camera: NDArray[np.float64],
    low_pass: float,
) -> RenderedView:
    """Return the first ``count`` spheres of ``parameters`` (8, capacity) seen from a pose."""
    plan = RasterPlan(device=parameters.device)
    plan.project(parameters, count, camera, geometry.inverse(T_world_camera), low_pass)
    planes = torch.empty(plan.image_shape, device=parameters.device)
    plan.forward(planes)
    view = Rendering.from_planes(planes.cpu())
    return RenderedView(
        np.ascontiguousarray(view.colour.numpy()), view.depth.numpy(), view.silhouette.numpy()
    )


class MapRenderer:
    """A map that stays as it is, ready to be rendered from any pose by any camera."""

    def __init__(self, state: SphereState, low_pass: float, device: str = "cpu") -> None:
        self._parameters = torch.from_numpy(state.columns()).to(device)
        self._low_pass = low_pass

    def render(self, T_world_camera: NDArray[np.float64], camera: Camera) -> RenderedView:
        """Return the map seen from the pose (4, 4), camera points to world points."""
        count = self._parameters.shape[1]
        return render_view(self._parameters, count, camera, T_world_camera, self._low_pass)
