"""Optimisation of the map and of the window's poses against the window's images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import _native, geometry
from gsslam.camera import Camera
from gsslam.config import MappingConfig
from gsslam.fused import FusedMapping
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Images, Keyframe
from gsslam.losses import ImageLoss, LossWeights
from gsslam.memory import MemoryUse, tensor_bytes
from gsslam.optimizer import SphereAdam
from gsslam.raster import constants as c
from gsslam.raster.plan import RasterPlan
from gsslam.window_images import WindowImages

_BETAS = (0.9, 0.999)
_EPSILON = 1e-15


class MapOptimizer:
    """One Adam step at a time: forward, loss, backward, spheres, pose and exposure."""

    def __init__(
        self,
        config: MappingConfig,
        camera: Camera,
        low_pass: float,
        device: torch.device | str = "cpu",
        decay: float = 1.0,
    ) -> None:
        """``decay`` is what is left of the observations after a step that sees the sphere."""
        self._config = config
        self._camera = camera
        self._low_pass = low_pass
        self._plan = RasterPlan(device=device)
        self._loss = ImageLoss(
            LossWeights(config.ssim_weight, config.depth_weight, config.silhouette_weight), device
        )
        self._adam = SphereAdam(_BETAS, _EPSILON, device)
        self._rates = sphere_rates(config).to(device)
        self._decay = decay
        self._images = WindowImages(device, config.window_size + config.window_random)
        self._fused = self._make_fused()
        size = (camera.height, camera.width)
        self._image = torch.empty((c.PLANE_FEATURE, *size), device=device)
        if self._fused:
            size = (0, 0)  # fused steps have images of their own
        self._grad_image = torch.empty((c.PLANE_FEATURE, *size), device=device)
        self._error = torch.empty(size, device=device)
        self._rgb = torch.empty((3, *size), device=device)

    def _make_fused(self) -> FusedMapping | None:
        """Return the fused steps, which only a GPU has."""
        device = self._rates.device
        if device.type == "cpu":
            return None
        rates, adam = self._rates.tolist(), (*_BETAS, _EPSILON)
        return FusedMapping(
            self._config, self._camera, self._low_pass, rates, adam, device, self._decay
        )

    def run(
        self,
        gaussian_map: GaussianMap,
        keyframes: list[Keyframe],
        tasks: list[tuple[int, bool]],
        observed: int = 0,
    ) -> list[float]:
        """Take one step for each task; returns the loss before each.

        A task names one of ``keyframes`` and says whether its pose and exposure are refined. The
        last ``observed`` steps also update the map's observations.
        """
        if self._fused:
            images = self.images_of(keyframes)
            return self._fused.run(gaussian_map, keyframes, images, tasks, observed)
        return [
            self.step(
                gaussian_map,
                keyframes[index],
                refine_pose=refine,
                observe=step >= len(tasks) - observed,
            )
            for step, (index, refine) in enumerate(tasks)
        ]

    def images_of(self, keyframes: Sequence[Keyframe]) -> list[Images]:
        """Return the keyframes' images on the device; they hold until the next call or ``run``."""
        return self._images.of(keyframes)

    def memory(self) -> MemoryUse:
        """Return what the lists and buffers take."""
        images = tensor_bytes(self._image, self._grad_image, self._error, self._rgb)
        images += self._images.bytes()
        lists = self._plan.bytes() + (self._fused.bytes() if self._fused else 0)
        return MemoryUse(lists=lists, buffers=images + self._loss.bytes())

    def drop_lists(self) -> None:
        """Give the memory of the lists back; the next step makes new ones, as long as it needs.

        How much memory they take afterwards depends on nothing that was before.
        """
        self._plan = RasterPlan(device=self._rates.device)
        self._fused = None  # the old lists go before new ones come
        self._fused = self._make_fused()

    def render(
        self, gaussian_map: GaussianMap, T_camera_world: NDArray[np.float64]
    ) -> torch.Tensor:
        """Return the planes (5, H, W) of the map; overwritten by the next call."""
        if self._fused:
            self._fused.render(gaussian_map, T_camera_world, self._image)
            return self._image
        self._plan.project(
            gaussian_map.parameters,
            gaussian_map.count,
            self._camera,
            T_camera_world,
            self._low_pass,
        )
        self._plan.forward(self._image)
        return self._image

    def step(
        self,
        gaussian_map: GaussianMap,
        keyframe: Keyframe,
        *,
        refine_pose: bool,
        observe: bool = False,
    ) -> float:
        """Take one step against one keyframe; returns the loss before it."""
        ((rgb, depth),) = self.images_of([keyframe])
        image = self.render(gaussian_map, keyframe.T_camera_world)
        loss = self._loss.evaluate(
            image,
            self._rgb.copy_(rgb).div_(255),
            depth,
            gradient=self._grad_image,
            error=self._error,
            gain=keyframe.gain,
            bias=keyframe.bias,
        )
        error, statistics = None, None
        if observe:
            error, statistics = self._error, gaussian_map.observations.statistics
        grad_pose = self._plan.backward(
            image, self._grad_image, gaussian_map.gradient, error, statistics, self._decay
        )
        self._adam.step(
            gaussian_map.parameters,
            gaussian_map.gradient,
            gaussian_map.adam,
            self._rates,
            gaussian_map.count,
        )
        if refine_pose:
            self._step_keyframe(keyframe, grad_pose, loss)
        return loss.total

    def _step_keyframe(
        self, keyframe: Keyframe, grad_pose: NDArray[np.float64], loss: _native.LossValue
    ) -> None:
        twist = twist_gradient(grad_pose, keyframe.T_camera_world)
        gradient = np.array([*twist, loss.grad_gain, loss.grad_bias])
        rates = np.array([self._config.pose_rate] * 6 + [self._config.exposure_rate] * 2)
        keyframe.steps += 1
        keyframe.moment1 += (1 - _BETAS[0]) * (gradient - keyframe.moment1)
        keyframe.moment2 += (1 - _BETAS[1]) * (gradient**2 - keyframe.moment2)
        mean = keyframe.moment1 / (1 - _BETAS[0] ** keyframe.steps)
        square = keyframe.moment2 / (1 - _BETAS[1] ** keyframe.steps)
        step = -rates * mean / (np.sqrt(square) + _EPSILON)
        keyframe.T_camera_world = geometry.moved(keyframe.T_camera_world, step[:6])
        keyframe.gain += float(step[6])
        keyframe.bias += float(step[7])


def sphere_rates(config: MappingConfig) -> torch.Tensor:
    """Return the learning rate of each row of the parameters (8,)."""
    rates = [config.centre_rate] * 3 + [config.radius_rate, config.opacity_rate]
    return torch.tensor(rates + [config.colour_rate] * 3)


def twist_gradient(
    grad_pose: NDArray[np.float64], T_camera_world: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Turn dL/dT (3, 4) into the gradient (6,) of the twist of exp(xi) T_camera_world at zero."""
    # d(exp(xi) T) = hat(xi) T, so dL/domega_k is the sum of G * (hat(e_k) T), and dL/dv = G's last.
    moment = T_camera_world[:3] @ grad_pose.T  # (3, 3): rows T's, columns G's
    omega = [moment[1, 2] - moment[2, 1], moment[2, 0] - moment[0, 2], moment[0, 1] - moment[1, 0]]
    return np.concatenate([grad_pose[:, 3], omega])
