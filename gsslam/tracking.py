"""Camera tracking: damped Gauss-Newton on the rendered map, coarse to fine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.config import TrackingConfig
from gsslam.fused import LIST_MARGIN, FusedTracker
from gsslam.memory import MemoryUse
from gsslam.normal_equations import (
    NormalEquations,
    NormalEquationSolver,
    PatchSampling,
    ResidualWeights,
)
from gsslam.pyramid import ImageLevel
from gsslam.raster.plan import RasterPlan

Array = NDArray[np.float64]

# Damping (share of the diagonal): first, least, and its change after a step that helped or not.
_DAMPING, _MIN_DAMPING, _DAMPING_FACTOR = 1e-4, 1e-7, 10.0


@dataclass(frozen=True)
class PoseEstimate:
    """Pose and exposure of a frame, and how they were found."""

    T_camera_world: Array
    gain: float
    bias: float
    # Of the best state that was evaluated.
    equations: NormalEquations
    valid_share: float
    iterations: int
    converged: bool

    def verdict(self, config: TrackingConfig) -> str:
        """Return why the estimate cannot be trusted, or nothing."""
        if not np.isfinite(self.T_camera_world).all():
            return "the pose is not finite"
        if self.valid_share < config.min_valid_share:
            return f"only {self.valid_share:.0%} of the image is covered by the map"
        if not 1 / config.max_gain < self.gain < config.max_gain:
            return f"the image is {self.gain:.2f} times as bright as the map"
        if self.equations.colour_rms > config.max_colour_residual:
            return f"the colour residual {self.equations.colour_rms:.3f} is too large"
        return ""

    def conditioning(self) -> float:
        """Return the smallest eigenvalue of the pose's equations over the largest.

        Translation and rotation have different units, so each block is scaled by its own diagonal.
        """
        pose = self.equations.hessian[:6, :6]
        scale = np.sqrt(np.maximum(np.diag(pose), 1e-300))
        eigenvalues = np.linalg.eigvalsh(pose / np.outer(scale, scale))
        return float(max(eigenvalues[0], 0) / max(eigenvalues[-1], 1e-300))


class Tracker:
    """Finds the pose from which the map looks like the frame."""

    def __init__(
        self,
        config: TrackingConfig,
        low_pass: float,
        device: torch.device | str = "cpu",
        list_margin: float = LIST_MARGIN,
    ) -> None:
        self._config = config
        self._low_pass = low_pass
        self._list_margin = list_margin
        self._plan = RasterPlan(device=device)
        weights = ResidualWeights(
            config.huber_colour,
            config.depth_weight,
            config.depth_sigma_base,
            config.depth_sigma_quadratic,
            config.silhouette_threshold,
        )
        self._solver = NormalEquationSolver(weights, device)
        self._fused: FusedTracker | None = None
        if torch.device(device).type == "cuda":
            damping = (_DAMPING, _MIN_DAMPING, _DAMPING_FACTOR)
            limits = (config.exposure_prior, config.convergence_step)
            self._fused = FusedTracker(
                weights, low_pass, *limits, damping, device, list_margin=list_margin
            )

    def estimate(
        self,
        parameters: torch.Tensor,
        count: int,
        pyramid: list[ImageLevel],
        guesses: list[Array],
        gain: float,
        bias: float,
    ) -> PoseEstimate:
        """Refine the best of some guessed poses on every level of ``pyramid``, finest first in it.

        ``parameters`` (8, capacity) and ``count`` are the map's spheres; guesses are
        T_camera_world.
        """
        budgets = [self._config.iterations] + [self._config.coarse_iterations] * (len(pyramid) - 1)
        levels = list(reversed(list(zip(pyramid, budgets, strict=True))))
        if self._fused:
            found = self._fused.estimate(parameters, count, levels, guesses, gain, bias)
            valid_share = found.equations.pixels / pyramid[0].depth.numel()
            return PoseEstimate(
                found.T_camera_world,
                found.gain,
                found.bias,
                found.equations,
                valid_share,
                found.iterations,
                found.converged,
            )
        self._plan.forget()  # the map may have changed since the last frame
        estimate = None
        T_camera_world = self._best_guess(parameters, count, pyramid[-1], guesses, gain, bias)
        for level, iterations in levels:
            estimate = self._refine(
                parameters, count, level, T_camera_world, gain, bias, iterations
            )
            T_camera_world, gain, bias = estimate.T_camera_world, estimate.gain, estimate.bias
        assert estimate is not None  # the finest level has at least one iteration
        return estimate

    def memory(self) -> MemoryUse:
        """Return what the lists and buffers take."""
        lists = self._plan.bytes() + self._solver.bytes()
        return MemoryUse(lists=lists + (self._fused.bytes() if self._fused else 0))

    def _project(
        self, parameters: torch.Tensor, count: int, level: ImageLevel, T_camera_world: Array
    ) -> None:
        """Project the map, with the lists of the pose before where the image has hardly moved."""
        if not self._plan.refresh(level.camera, T_camera_world, self._low_pass):
            self._plan.project(
                parameters,
                count,
                level.camera,
                T_camera_world,
                self._low_pass,
                list_margin=self._list_margin,
            )

    def _best_guess(
        self,
        parameters: torch.Tensor,
        count: int,
        level: ImageLevel,
        guesses: list[Array],
        gain: float,
        bias: float,
    ) -> Array:
        if len(guesses) == 1:
            return guesses[0]
        sampling = PatchSampling.at_most(self._config.max_pixels, level.camera)
        costs = []
        for T_camera_world in guesses:
            self._project(parameters, count, level, T_camera_world)
            equations = self._solver.compare(
                self._plan, level.rgb, level.depth, gain, bias, sampling
            )
            costs.append(equations.mean_cost())
        return guesses[int(np.argmin(costs))]

    def _refine(
        self,
        parameters: torch.Tensor,
        count: int,
        level: ImageLevel,
        T: Array,
        gain: float,
        bias: float,
        iterations: int,
    ) -> PoseEstimate:
        best = (T, gain, bias)
        state, best_equations, best_cost = best, None, np.inf
        damping, converged, iteration = _DAMPING, False, 0
        sampling = PatchSampling.at_most(self._config.max_pixels, level.camera)
        while iteration < iterations and not converged:
            iteration += 1
            self._project(parameters, count, level, state[0])
            equations = self._solver.form(self._plan, level.rgb, level.depth, *state[1:], sampling)
            cost = equations.mean_cost()
            if best_equations is None or cost <= best_cost:
                best, best_equations, best_cost = state, equations, cost
                damping = max(damping / _DAMPING_FACTOR, _MIN_DAMPING)
            else:
                damping *= _DAMPING_FACTOR**2
            step = self._step(best_equations, best[1], best[2], damping)
            if step is None:
                break
            state = (geometry.moved(best[0], step[:6]), best[1] + step[6], best[2] + step[7])
            converged = bool(np.abs(step[:6]).max() < self._config.convergence_step)
        assert best_equations is not None
        # The last step is not evaluated; it is taken unless the one before it had failed.
        final = state if converged or best_equations is equations else best
        valid_share = best_equations.pixels / sampling.pixels(*level.depth.shape)
        return PoseEstimate(*final, best_equations, valid_share, iteration, converged)

    def _step(
        self, equations: NormalEquations, gain: float, bias: float, damping: float
    ) -> Array | None:
        """Return the damped Gauss-Newton step (8,), or None where there is nothing to solve."""
        if equations.pixels == 0 or not np.isfinite(equations.hessian).all():
            return None
        hessian, gradient = equations.hessian.copy(), equations.gradient.copy()
        # The exposure is held near (1, 0) as if some pixels had said so.
        prior = self._config.exposure_prior * equations.pixels / self._config.huber_colour**2
        hessian[6, 6] += prior
        hessian[7, 7] += prior
        gradient[6] += prior * (gain - 1)
        gradient[7] += prior * bias
        diagonal = np.maximum(np.diag(hessian), 1e-12)
        try:
            step = -np.linalg.solve(hessian + damping * np.diag(diagonal), gradient)
            return step.astype(np.float64)
        except np.linalg.LinAlgError:
            return None
