"""The same SLAM with gsplat's rasteriser in place of ours, on spheres or on ellipsoids.

Everything else is shared: insertion, loss, learning rates, Adam, robust weights, keyframes. gsplat
has no Jacobians of the pose, so that tracking takes them by central differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.normal_equations import (
    ALL_PIXELS,
    NormalEquations,
    NormalEquationSolver,
    PatchSampling,
    ResidualWeights,
    weighted_equations,
)
from gsslam.optimize import MapOptimizer, sphere_rates
from gsslam.pyramid import ImageLevel
from gsslam.raster import constants as c
from gsslam.raster.gsplat import ELLIPSOID_ROWS, ROW_OTHER_AXES, ROW_QUATERNION, rasterize_gsplat
from gsslam.raster.interface import Rendering
from gsslam.raster.plan import RasterPlan
from gsslam.results import RenderedView
from gsslam.slam import Slam
from gsslam.snapshot import MapSnapshot
from gsslam.tracking import Tracker

Array = NDArray[np.float64]

# Metres and radians: small against a pixel, large against rounding.
_DIFFERENCE = 3e-4
# Learning rate of the quaternion, that of gsplat's own trainer.
_QUATERNION_RATE = 1e-3


class EllipsoidMap(GaussianMap):
    """A map of ellipsoids, which start as spheres."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        super().__init__(capacity, device=device, rows=ELLIPSOID_ROWS)

    def insert(self, parameters: torch.Tensor) -> int:
        """Append spheres (8, n)."""
        rows = parameters.new_zeros(ELLIPSOID_ROWS, parameters.shape[1])
        rows[: len(parameters)] = parameters
        rows[ROW_OTHER_AXES] = parameters[c.ROW_LOG_RADIUS]
        rows[ROW_QUATERNION.start] = 1
        return super().insert(rows)


def _pose(T: Array, device: torch.device) -> torch.Tensor:
    return torch.tensor(T, dtype=torch.float32, device=device)[None]


class GsplatOptimizer(MapOptimizer):
    """Mapping steps through gsplat and automatic differentiation."""

    def __init__(self, config: SlamConfig, camera: Camera, rows: int, device: torch.device) -> None:
        super().__init__(config.mapping, camera, config.map.low_pass, device)
        rates = sphere_rates(config.mapping).tolist()
        if rows == ELLIPSOID_ROWS:
            rates += [config.mapping.radius_rate] * 2 + [_QUATERNION_RATE] * 4
        self._rates = torch.tensor(rates, device=device)

    def _make_fused(self) -> None:
        return None

    def render(self, gaussian_map: GaussianMap, T_camera_world: Array) -> torch.Tensor:
        """Return the planes (5, H, W) of the map."""
        with torch.no_grad():
            return self._planes(gaussian_map.live, _pose(T_camera_world, self._rates.device))

    def _planes(self, parameters: torch.Tensor, pose: torch.Tensor) -> torch.Tensor:
        if parameters.shape[1] == 0:
            return torch.zeros_like(self._image)
        return rasterize_gsplat(parameters, pose, self._camera, self._low_pass)[0]

    def step(
        self,
        gaussian_map: GaussianMap,
        keyframe: Keyframe,
        *,
        refine_pose: bool,
        observe: bool = False,
    ) -> float:
        """Take one step against one keyframe; returns the loss before it."""
        count = gaussian_map.count
        live = gaussian_map.live.detach().requires_grad_()
        pose = _pose(keyframe.T_camera_world, self._rates.device).requires_grad_(refine_pose)
        ((rgb, depth),) = self.images_of([keyframe])
        image = self._planes(live, pose)
        loss = self._loss.evaluate(
            image.detach(),
            self._rgb.copy_(rgb).div_(255),
            depth,
            gradient=self._grad_image,
            error=self._error,
            gain=keyframe.gain,
            bias=keyframe.bias,
        )
        image.backward(self._grad_image)  # type: ignore[no-untyped-call]
        assert live.grad is not None
        gaussian_map.gradient[:, :count] = live.grad
        self._adam.step(
            gaussian_map.parameters,
            gaussian_map.gradient,
            gaussian_map.adam,
            self._rates,
            count,
        )
        if refine_pose and pose.grad is not None:
            grad_pose = pose.grad[0, :3].double().cpu().numpy()
            self._step_keyframe(keyframe, grad_pose, loss)
        return loss.total


class GsplatSolver(NormalEquationSolver):
    """Normal equations on gsplat's images, with Jacobians by central differences."""

    def __init__(self, weights: ResidualWeights, low_pass: float, device: torch.device) -> None:
        super().__init__(weights, device)
        self._residual_weights, self._low_pass = weights, low_pass
        # What is looked at next, and from where.
        self.spheres = torch.empty(0, 0, device=device)
        self.camera: Camera | None = None
        self.T_camera_world = np.eye(4)

    @torch.no_grad()
    def form(
        self,
        plan: RasterPlan,
        rgb: torch.Tensor,
        depth: torch.Tensor,
        gain: float,
        bias: float,
        sampling: PatchSampling = ALL_PIXELS,
    ) -> NormalEquations:
        """Return those of the spheres that were set."""
        assert self.camera is not None
        weights, device = self._residual_weights, self.spheres.device
        steps = np.concatenate(
            [np.zeros((1, 6)), _DIFFERENCE * np.eye(6), -_DIFFERENCE * np.eye(6)]
        )
        poses = np.stack([geometry.moved(self.T_camera_world, step) for step in steps])
        views = torch.tensor(poses, dtype=torch.float32, device=device)
        planes = rasterize_gsplat(self.spheres, views, self.camera, self._low_pass)
        silhouette = planes[0, c.PLANE_SILHOUETTE]
        valid = silhouette >= weights.silhouette_threshold
        valid &= sampling.mask(*valid.shape).to(device)
        measured = valid & (depth > 0)
        colours = planes[:, :3][:, :, valid].flatten(1).double()  # (13, 3 * pixels)
        expected = (planes[:, c.PLANE_DEPTH] / planes[:, c.PLANE_SILHOUETTE].clamp(min=1e-6))[
            :, measured
        ].double()
        seen_depth = depth[measured].double()
        sigma = weights.depth_sigma_base + weights.depth_sigma_quadratic * seen_depth**2
        unit = weights.huber_colour
        observed = rgb[:, valid].flatten().double()
        r = torch.cat(
            [(gain * colours[0] + bias - observed) / unit, (expected[0] - seen_depth) / sigma]
        )
        by_colour = gain * (colours[1:7] - colours[7:]) / (2 * _DIFFERENCE * unit)
        by_depth = (expected[1:7] - expected[7:]) / (2 * _DIFFERENCE * sigma)
        exposure = torch.zeros(2, len(r), dtype=torch.float64, device=device)
        exposure[0, : len(observed)] = colours[0] / unit
        exposure[1, : len(observed)] = 1 / unit
        J = torch.cat([torch.cat([by_colour, by_depth], dim=1), exposure]).T
        return weighted_equations(r, J, len(observed), sigma, weights)

    compare = form


class GsplatTracker(Tracker):
    """Gauss-Newton on gsplat's images."""

    def __init__(self, config: SlamConfig, device: torch.device) -> None:
        super().__init__(config.tracking, config.map.low_pass, device)
        self._fused = None
        t = config.tracking
        weights = ResidualWeights(
            t.huber_colour,
            t.depth_weight,
            t.depth_sigma_base,
            t.depth_sigma_quadratic,
            t.silhouette_threshold,
        )
        self._gsplat = GsplatSolver(weights, config.map.low_pass, device)
        self._solver = self._gsplat

    def _project(
        self, parameters: torch.Tensor, count: int, level: ImageLevel, T_camera_world: Array
    ) -> None:
        self._gsplat.spheres, self._gsplat.camera = parameters[:, :count], level.camera
        self._gsplat.T_camera_world = T_camera_world


class GsplatSlam(Slam):
    """SLAM through gsplat's rasteriser; raises ConfigError without a GPU."""

    def __init__(
        self, config: SlamConfig, camera: Camera, device: str, *, rows: int, **options: Any
    ) -> None:
        super().__init__(config, camera, device, **options)
        self._localizer._tracker = GsplatTracker(config, self._device)
        self._mapper._optimizer = GsplatOptimizer(config, camera, rows, self._device)
        if rows == ELLIPSOID_ROWS:
            self._mapper.map = EllipsoidMap(self.map.capacity, self._device)
            self._snapshot = MapSnapshot(self._mapper.map)

    def render(self, T_world_camera: Array, camera: Camera | None = None) -> RenderedView:
        """Return the map seen from a pose."""
        pose = _pose(geometry.inverse(T_world_camera), self.map.live.device)
        with torch.no_grad():
            planes = rasterize_gsplat(
                self.map.live, pose, camera or self._camera, self._config.map.low_pass
            )[0]
        view = Rendering.from_planes(planes.cpu())
        colour = np.ascontiguousarray(view.colour.numpy())
        return RenderedView(colour, view.depth.numpy(), view.silhouette.numpy())
