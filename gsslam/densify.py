"""Insertion of spheres where the map does not explain a frame."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.config import DensifyConfig
from gsslam.raster.constants import PLANE_DEPTH, PLANE_SILHOUETTE


def unexplained_pixels(
    planes: torch.Tensor, depth: torch.Tensor, config: DensifyConfig
) -> torch.Tensor:
    """Return (H, W) bool: pixels that the map leaves open, or puts behind what was measured.

    ``planes`` (5, H, W) is the map rendered at the frame's pose, ``depth`` (H, W) the measurement
    in metres. Pixels without a measurement count only if ``fill_unmeasured`` is set.
    """
    silhouette = planes[PLANE_SILHOUETTE]
    measured = _is_measured(depth, config)
    expected = planes[PLANE_DEPTH] / silhouette.clamp(min=1e-6)
    open_pixels = silhouette < config.silhouette_threshold
    behind = measured & (expected - depth > config.behind_share * depth)
    return (open_pixels & (measured | config.fill_unmeasured)) | behind


def thinned(mask: torch.Tensor, stride: int) -> torch.Tensor:
    """Return ``mask`` (H, W) with one pixel in stride x stride left of it, those of a grid."""
    on_grid = torch.zeros_like(mask)
    on_grid[stride // 2 :: stride, stride // 2 :: stride] = True
    return mask & on_grid


def filled_depth(depth: torch.Tensor, wanted: torch.Tensor, config: DensifyConfig) -> torch.Tensor:
    """Return depth (H, W) whose ``wanted`` (H, W) unmeasured pixels take the nearest measurement.

    At least one pixel must be measured.
    """
    measured = _is_measured(depth, config)
    v, u = (wanted & ~measured).nonzero(as_tuple=True)
    if len(v) == 0:
        return depth
    _, labels = cv2.distanceTransformWithLabels(
        (~measured).cpu().numpy().astype(np.uint8),
        cv2.DIST_L2,
        5,
        labelType=cv2.DIST_LABEL_PIXEL,
    )
    # Measured pixels are numbered row by row, from 1; the others carry the nearest one's number.
    nearest = torch.from_numpy(labels[v.cpu().numpy(), u.cpu().numpy()]).to(depth.device) - 1
    filled = depth.clone()
    filled[v, u] = depth[measured][nearest]
    return filled


def _is_measured(depth: torch.Tensor, config: DensifyConfig) -> torch.Tensor:
    return (depth > 0) & depth.isfinite() & (depth < config.max_depth)


def spheres_from_pixels(
    mask: torch.Tensor,
    rgb: torch.Tensor,
    depth: torch.Tensor,
    camera: Camera,
    T_camera_world: NDArray[np.float64],
    config: DensifyConfig,
) -> torch.Tensor:
    """Back-project pixels to new spheres, (8, n): one for each marked pixel of the stride's grid.

    ``rgb`` (3, H, W) holds the map's colours, 0 to 1; ``depth`` (H, W) is in metres. The radius is
    that of the pixel's footprint, stride pixels wide, times ``radius_scale``.
    """
    v, u = thinned(mask, config.stride).nonzero(as_tuple=True)  # (n,) rows and columns
    z = depth[v, u].double()
    x = (u + 0.5 - camera.cx) / camera.fx * z
    y = (v + 0.5 - camera.cy) / camera.fy * z
    new = torch.empty(8, len(z), device=depth.device)
    # Not by a matrix product, for which a GPU would need cuBLAS and its workspace.
    for row, (a, b, c, d) in enumerate(geometry.inverse(T_camera_world)[:3].tolist()):
        new[row] = a * x + b * y + c * z + d
    new[3] = torch.log(config.radius_scale * config.stride * z / (camera.fx * camera.fy) ** 0.5)
    new[4] = float(np.log(config.opacity / (1 - config.opacity)))
    new[5:] = rgb[:, v, u].clamp(0, 1)
    return new
