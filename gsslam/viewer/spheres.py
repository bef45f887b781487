"""What the viewer knows of the spheres, copied from a map at rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.gaussian_map import GaussianMap
from gsslam.raster import constants as c
from gsslam.rendering import render_view
from gsslam.results import RenderedView, SphereState

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Spheres:
    """Spheres as arrays on the host; what a source does not know is None."""

    # (8 + D, N) as in GaussianMap.with_queries.
    parameters: Array
    # (N,) mean colour error of the pixels that each explains, 0 to 1; NaN before it was seen.
    error: Array | None = None
    # (N,) what pruning thinks of each, see docs/pruning.md.
    score: Array | None = None

    @property
    def xyz(self) -> Array:
        """Centres in the world, metres, (N, 3)."""
        return self.parameters[c.ROW_XYZ].T

    @property
    def radius(self) -> Array:
        """Metres, (N,)."""
        return np.asarray(np.exp(self.parameters[c.ROW_LOG_RADIUS]))

    @property
    def opacity(self) -> Array:
        """0 to 1, (N,)."""
        logit = self.parameters[c.ROW_OPACITY_LOGIT]
        # The same as 1 / (1 + exp(-x)), without its overflow.
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * logit), dtype=np.float32)

    @property
    def rgb(self) -> Array:
        """0 to 1, may overshoot a little, (N, 3)."""
        return self.parameters[c.ROW_RGB].T

    @property
    def features(self) -> Array:
        """Learned queries, (N, D), D = 0 where there are none."""
        return self.parameters[c.ROW_FEATURE :].T

    def view(
        self,
        camera: Camera,
        T_world_camera: NDArray[np.float64],
        low_pass: float,
        exposure: tuple[float, float] = (1.0, 0.0),
    ) -> RenderedView:
        """Return what a camera should see of the spheres, with that gain and bias."""
        rows = torch.from_numpy(self.parameters[: c.ROW_FEATURE])
        view = render_view(rows, rows.shape[1], camera, T_world_camera, low_pass)
        gain, bias = np.float32(exposure[0]), np.float32(exposure[1])
        return RenderedView(gain * view.colour + bias, view.depth, view.silhouette)

    @staticmethod
    def of_state(state: SphereState) -> Spheres:
        """Return the spheres of a map file."""
        return Spheres(state.columns())


@dataclass(frozen=True)
class MapCopy:
    """The arrays of a map as they were; turned into Spheres by another thread than tracking's."""

    parameters: torch.Tensor
    statistics: torch.Tensor
    score: torch.Tensor

    @staticmethod
    def of_map(spheres: GaussianMap) -> MapCopy:
        """Copy a map at rest to the host."""
        seen, count = spheres.observations, spheres.count
        parts = (spheres.with_queries[:, :count], seen.statistics[:, :count], seen.score[:count])
        copies = [part.to("cpu", copy=True) for part in parts]
        return MapCopy(*copies)

    def spheres(self) -> Spheres:
        """Return the copy as arrays."""
        statistics = self.statistics.numpy()
        weight = statistics[c.STAT_WEIGHT]
        error = np.full_like(weight, np.nan)
        np.divide(statistics[c.STAT_WEIGHTED_ERROR], weight, out=error, where=weight > 0)
        return Spheres(self.parameters.numpy(), error, self.score.numpy())
