"""The rasteriser's specification in plain PyTorch, float64: slow, and written to be read.

Cut-offs, clamps, blending order and early stop are those of the native kernels. Every sphere is
evaluated at every pixel, so keep the images small.
"""

from __future__ import annotations

import torch

from gsslam.camera import Camera
from gsslam.raster import constants as c


def rasterize_reference(
    parameters: torch.Tensor,
    T_camera_world: torch.Tensor,
    camera: Camera,
    low_pass: float,
    T_order: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the (5 + D, H, W) float64 planes of (8 + D, N) sphere parameters.

    With ``T_order`` the spheres blend in the order that their depths have at that pose.
    """
    weights, order, depth, _ = blending_weights(
        parameters, T_camera_world, camera, low_pass, T_order
    )
    ordered = parameters.double()[:, order]  # (8 + D, V)
    channels = torch.cat(  # (5 + D, V): what a unit of weight adds to each plane
        [ordered[c.ROW_RGB], depth[None], torch.ones_like(depth)[None], ordered[c.ROW_FEATURE :]]
    )
    return (channels @ weights).reshape(-1, camera.height, camera.width)


def blending_weights(
    parameters: torch.Tensor,
    T_camera_world: torch.Tensor,
    camera: Camera,
    low_pass: float,
    T_order: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return weights (V, H*W) of the V drawn spheres, front to back, and what they came from.

    The others are the spheres' columns in blending order (V,), their depths (V,) in metres, and the
    alphas (V, H*W).
    """
    parameters, T = parameters.double(), T_camera_world.double()
    points = T[:3, :3] @ parameters[c.ROW_XYZ] + T[:3, 3:]  # (3, N)
    focal = (camera.fx * camera.fy) ** 0.5
    sigma = focal * parameters[c.ROW_LOG_RADIUS].exp() / points[2]  # (N,) pixels
    opacity = parameters[c.ROW_OPACITY_LOGIT].sigmoid() * sigma**2 / (sigma**2 + low_pass)
    drawn = (points[2] > c.NEAR_PLANE) & (sigma < c.MAX_SIGMA) & (opacity >= c.MIN_ALPHA)
    drawn &= points.isfinite().all(dim=0)
    order = drawn.nonzero()[:, 0]
    # Depths are compared as float32, as the kernels do; equal ones keep the order of their indices.
    T_order = T if T_order is None else T_order.double()
    depths = T_order[2, :3] @ parameters[c.ROW_XYZ] + T_order[2, 3]  # (N,)
    order = order[torch.argsort(depths[order].float(), stable=True)]
    (x, y, z), sigma, opacity = points[:, order], sigma[order], opacity[order]  # (V,)

    rows = torch.arange(camera.height, dtype=torch.float64) + 0.5
    columns = torch.arange(camera.width, dtype=torch.float64) + 0.5
    rows, columns = torch.meshgrid(rows, columns, indexing="ij")
    dx = columns.reshape(1, -1) - (camera.fx * x / z + camera.cx)[:, None]  # (V, H*W)
    dy = rows.reshape(1, -1) - (camera.fy * y / z + camera.cy)[:, None]
    variance = sigma**2 + low_pass
    alpha = opacity[:, None] * torch.exp(-(dx**2 + dy**2) / (2 * variance[:, None]))
    alpha = torch.where(alpha >= c.MIN_ALPHA, alpha.clamp(max=c.MAX_ALPHA), 0.0)
    # Transmittance in front of each sphere. It only falls, so that a pixel that has fallen below
    # the limit stays below it: the mask stops the pixel for good.
    passed = torch.cumprod(1 - alpha, dim=0)
    transmittance = torch.cat([torch.ones_like(passed[:1]), passed[:-1]])
    weights = torch.where(transmittance >= c.MIN_TRANSMITTANCE, alpha * transmittance, 0.0)
    return weights, order, z, alpha


def statistics_reference(
    parameters: torch.Tensor,
    T_camera_world: torch.Tensor,
    camera: Camera,
    low_pass: float,
    error: torch.Tensor,
) -> torch.Tensor:
    """Return (4, N): for each sphere the sums over pixels of weight and of weight x error.

    Then its largest weight and the number of pixels that it reaches. ``error`` is (H, W).
    """
    weights, order, _, _ = blending_weights(parameters, T_camera_world, camera, low_pass)
    result = torch.zeros(c.STATISTICS, parameters.shape[1], dtype=torch.float64)
    result[c.STAT_WEIGHT, order] = weights.sum(dim=1)
    result[c.STAT_WEIGHTED_ERROR, order] = weights @ error.double().reshape(-1)
    result[c.STAT_MAX_WEIGHT, order] = weights.amax(dim=1) if weights.numel() else 0.0
    result[c.STAT_PIXELS, order] = (weights > 0).sum(dim=1).double()
    return result


def keep_statistics(kept: torch.Tensor, statistics: torch.Tensor, decay: float) -> torch.Tensor:
    """Return the statistics kept (4, N) after a pass with ``statistics`` (4, N).

    Sums, and the largest weight, fade by ``decay`` in every pass that sees the sphere, so that they
    stand for its last 1 / (1 - decay) views or so; in other passes nothing changes.
    """
    after = decay * kept + statistics
    largest = torch.maximum(decay * kept[c.STAT_MAX_WEIGHT], statistics[c.STAT_MAX_WEIGHT])
    after[c.STAT_MAX_WEIGHT] = largest
    return torch.where(statistics[c.STAT_PIXELS] > 0, after, kept)
