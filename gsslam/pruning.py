"""Removal of spheres that do not earn their memory."""

from __future__ import annotations

import math

import torch

from gsslam.config import PruningConfig
from gsslam.gaussian_map import GaussianMap
from gsslam.raster.constants import ROW_LOG_RADIUS, ROW_OPACITY_LOGIT


def prune_faint_and_large(gaussian_map: GaussianMap, config: PruningConfig) -> int:
    """Remove spheres that are almost transparent, far too large or not finite; returns how many."""
    live = gaussian_map.live
    doomed = torch.sigmoid(live[ROW_OPACITY_LOGIT]) < config.min_opacity
    doomed |= live[ROW_LOG_RADIUS] > math.log(config.max_radius)
    doomed |= ~live.isfinite().all(dim=0)
    return gaussian_map.remove(doomed)


def make_room(gaussian_map: GaussianMap, wanted: int) -> int:
    """Remove the least opaque spheres until ``wanted`` more fit; returns how many went."""
    excess = gaussian_map.count + wanted - gaussian_map.capacity
    if excess <= 0:
        return 0
    opacity = gaussian_map.live[ROW_OPACITY_LOGIT]
    doomed = torch.zeros(gaussian_map.count, dtype=torch.bool, device=opacity.device)
    doomed[torch.argsort(opacity, stable=True)[:excess]] = True
    return gaussian_map.remove(doomed)
