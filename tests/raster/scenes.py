"""Random and nasty sphere scenes for the rasteriser's tests."""

from __future__ import annotations

import numpy as np
import torch

from gsslam import geometry
from gsslam.camera import Camera

# Sizes that leave a partial last tile and a partial last block.
CAMERA = Camera(45, 37, 40.0, 42.0, 22.3, 18.9)


def random_pose(rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(geometry.exp_se3(rng.normal(size=6) * [0.1, 0.1, 0.1, 0.2, 0.2, 0.2]))


def random_spheres(
    rng: np.random.Generator, n: int, sigma: float = 2.0, num_features: int = 0
) -> torch.Tensor:
    """Return (8 + D, n) float32 spheres in front of CAMERA near the identity pose."""
    z = rng.uniform(0.5, 4, n)
    u, v = rng.uniform(-5, CAMERA.width + 5, n), rng.uniform(-5, CAMERA.height + 5, n)
    radius = sigma * z / CAMERA.fx * np.exp(0.6 * rng.normal(size=n))
    rows = [
        (u - CAMERA.cx) / CAMERA.fx * z,
        (v - CAMERA.cy) / CAMERA.fy * z,
        z,
        np.log(radius),
        2 * rng.normal(size=n),
        *rng.uniform(0, 1, (3, n)),
        *rng.normal(size=(num_features, n)),
    ]
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def _one(x: float, y: float, z: float, log_radius: float, opacity_logit: float) -> list[float]:
    return [x, y, z, log_radius, opacity_logit, 0.3, 0.6, 0.9]


INF, NAN = float("inf"), float("nan")

# Each must be drawn or left out without touching its neighbours.
NASTY = {
    "behind the camera": [_one(0, 0, -1, -3, 2)],
    "at the camera centre": [_one(0, 0, 0, -3, 2)],
    "on the near plane": [_one(0, 0, 0.01, -6, 2)],
    "just past the near plane": [_one(0, 0, 0.0101, -9, 2)],
    "infinite radius": [_one(0, 0, 1, INF, 2)],
    "radius overflows": [_one(0, 0, 1, 80, 2)],
    "huge radius": [_one(0, 0, 1, 8, 2)],
    "zero radius": [_one(0, 0, 1, -INF, 2)],
    "NaN radius": [_one(0, 0, 1, NAN, 2)],
    "NaN centre": [_one(NAN, 0, 1, -3, 2), _one(0, 0, NAN, -3, 2)],
    "infinite centre": [_one(INF, 0, 1, -3, 2), _one(0, 0, INF, -3, 2)],
    "far away": [_one(1e20, 1e20, 1e20, -3, 2)],
    "NaN opacity": [_one(0, 0, 1, -3, NAN)],
    "opacity 0": [_one(0, 0, 1, -3, -INF)],
    "opacity 1": [_one(0, 0, 1, -3, INF)],
    "opacity just under 1/255": [_one(0, 0, 1, 1, float(np.log(0.99 / 254)))],
    "opacity just over 1/255": [_one(0, 0, 1, 1, float(np.log(1.01 / 254)))],
    "equal depths": [_one(0.01 * i, 0, 1, -3, 1) for i in range(8)],
    "the same sphere many times": [_one(0, 0, 1, -3, 4)] * 40,
    "on a tile's corner": [_one((16 - 22.3) / 40, (16 - 18.9) / 42, 1, -4, 2)],
    "far outside the image": [_one(5, 5, 1, -3, 2)],
    "many on one tile": [_one(0.001 * i, 0, 1 + 0.001 * i, -3.5, -2) for i in range(600)],
}


def nasty_spheres(name: str) -> torch.Tensor:
    """Return (8, n) float32 spheres."""
    return torch.tensor(NASTY[name], dtype=torch.float32).T.contiguous()
