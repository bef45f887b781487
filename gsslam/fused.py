"""Fused CUDA steps: a frame's tracking and a keyframe's mapping, each queued as one.

They compute what ``tracking.Tracker`` and ``optimize.MapOptimizer`` do step by step on the CPU;
only images go to the GPU and only poses come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.config import MappingConfig
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Images, Keyframe
from gsslam.native import Plan, native_structure
from gsslam.normal_equations import NormalEquations, ResidualWeights
from gsslam.pyramid import ImageLevel
from gsslam.raster.plan import native_view

Array = NDArray[np.float64]

# Pixels that the image may move before the tiles' lists are made again.
LIST_MARGIN = 2.0


def _intrinsics(camera: Camera) -> list[float]:
    return [camera.fx, camera.fy, camera.cx, camera.cy]


def _rows(T: Array) -> list[float]:
    return [float(value) for value in T[:3].ravel()]


def _matrix(rows: list[float]) -> Array:
    return np.vstack([np.reshape(rows, (3, 4)), [0, 0, 0, 1]])


def _state(k: Keyframe, images: Images) -> tuple[Any, ...]:
    """Return a keyframe as the native plan takes it."""
    moments = (k.moment1.tolist(), k.moment2.tolist())
    return (_rows(k.T_camera_world), k.gain, k.bias, *moments, k.steps, *images)


class FusedMapping:
    """Runs of mapping steps on a GPU; not to be used by two threads at a time."""

    def __init__(
        self,
        config: MappingConfig,
        camera: Camera,
        low_pass: float,
        sphere_rates: list[float],
        adam: tuple[float, float, float],
        device: torch.device | str,
        decay: float,
    ) -> None:
        """``sphere_rates`` has one for each of the 8 rows; ``adam`` is beta1, beta2, epsilon.

        ``decay`` is what is left of the observations after a step that sees the sphere.
        """
        self._camera, self._low_pass, self._decay = camera, low_pass, decay
        weights = native_structure(
            "LossWeights",
            ssim=config.ssim_weight,
            depth=config.depth_weight,
            silhouette=config.silhouette_weight,
            silhouette_threshold=0.5,
        )
        self._plan = Plan(
            "Mapping",
            device,
            width=camera.width,
            height=camera.height,
            intrinsics=_intrinsics(camera),
            low_pass=low_pass,
            weights=weights,
            adam=adam,
            keyframe_rates=[config.pose_rate, config.exposure_rate],
            sphere_rates=sphere_rates,
        )

    def bytes(self) -> int:
        """Return how much memory of the GPU the buffers take."""
        return self._plan.bytes()

    def render(self, gaussian_map: GaussianMap, T_camera_world: Array, image: torch.Tensor) -> None:
        """Write the planes (5, H, W) of the map into ``image``, with the lists of the steps."""
        self._plan.call(
            "render",
            parameters=gaussian_map.parameters,
            count=gaussian_map.count,
            view=native_view(self._camera, T_camera_world, self._low_pass),
            image=image,
        )

    def run(
        self,
        gaussian_map: GaussianMap,
        keyframes: list[Keyframe],
        images: list[Images],
        tasks: list[tuple[int, bool]],
        observed: int,
    ) -> list[float]:
        """Take one step for each task, in place; returns the loss before each.

        ``images`` are those of ``keyframes``, on the GPU. A task names one of ``keyframes`` and
        says whether its pose and exposure are stepped too. The last ``observed`` steps also
        update the map's observations.
        """
        adam = gaussian_map.adam
        stepped, losses = self._plan.call(
            "run",
            parameters=gaussian_map.parameters,
            first_moment=adam.first_moment,
            second_moment=adam.second_moment,
            steps=adam.steps,
            count=gaussian_map.count,
            keyframes=list(map(_state, keyframes, images)),
            tasks=tasks,
            statistics=gaussian_map.observations.statistics,
            decay=self._decay,
            observed=min(observed, len(tasks)),
        )
        for keyframe, state in zip(keyframes, stepped, strict=True):
            keyframe.T_camera_world = _matrix(state[0])
            keyframe.gain, keyframe.bias = state[1], state[2]
            keyframe.moment1, keyframe.moment2 = np.array(state[3]), np.array(state[4])
            keyframe.steps = state[5]
        return list(losses)


@dataclass(frozen=True)
class FusedEstimate:
    """What the tracker found."""

    T_camera_world: Array
    gain: float
    bias: float
    # Of the best state that was evaluated on the finest level.
    equations: NormalEquations
    # On the finest level.
    iterations: int
    converged: bool
    # How often the tiles' lists were made, guesses included.
    rebuilds: int


class FusedTracker:
    """Tracks frames on a GPU; not to be used by two threads at a time."""

    def __init__(
        self,
        weights: ResidualWeights,
        low_pass: float,
        exposure_prior: float,
        convergence_step: float,
        damping: tuple[float, float, float],
        device: torch.device | str,
        *,
        list_margin: float = LIST_MARGIN,
    ) -> None:
        """``damping`` is its first value, its least and its factor.

        A ``list_margin`` of 0 makes the lists anew in every iteration, so that the order of the
        spheres is exact at every pose.
        """
        self._low_pass = low_pass
        self._plan = Plan(
            "Tracker",
            device,
            weights=weights.to_native(),
            exposure_prior=exposure_prior,
            convergence_step=convergence_step,
            damping=damping,
            list_margin=list_margin,
        )

    def bytes(self) -> int:
        """Return how much memory of the GPU the buffers take."""
        return self._plan.bytes()

    def estimate(
        self,
        parameters: torch.Tensor,
        count: int,
        levels: list[tuple[ImageLevel, int]],
        guesses: list[Array],
        gain: float,
        bias: float,
    ) -> FusedEstimate:
        """Refine the best guess on every level, coarsest first, with its most iterations."""
        images = [
            (
                level.camera.width,
                level.camera.height,
                _intrinsics(level.camera),
                level.rgb,
                level.depth,
                iterations,
            )
            for level, iterations in levels
        ]
        result = self._plan.call(
            "estimate",
            low_pass=self._low_pass,
            parameters=parameters,
            count=count,
            levels=images,
            guesses=[_rows(guess) for guess in guesses],
            gain=gain,
            bias=bias,
        )
        return FusedEstimate(
            _matrix(result.T_camera_world),
            result.gain,
            result.bias,
            NormalEquations.from_sums(np.asarray(result.sums)),
            result.iterations,
            result.converged,
            result.rebuilds,
        )
