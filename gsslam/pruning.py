"""Removal of spheres that do not earn their memory. Formulas: docs/pruning.md."""

from __future__ import annotations

import math

import torch

from gsslam.config import PruningConfig
from gsslam.gaussian_map import GaussianMap
from gsslam.raster import constants as c

# The standard deviation of a normal distribution, in median absolute deviations.
_DEVIATIONS = 1.4826


def decay_of_window(steps: int) -> float:
    """Return what is left of a sum after one step, if it is to stand for the last ``steps``."""
    return 1 - 1 / steps


def prune(gaussian_map: GaussianMap, config: PruningConfig) -> int:
    """Judge the spheres that were seen since the last call, remove what fails; returns how many."""
    if config.judgements:
        judge(gaussian_map, config)
    live = gaussian_map.live
    doomed = torch.sigmoid(live[c.ROW_OPACITY_LOGIT]) < config.min_opacity
    doomed |= live[c.ROW_LOG_RADIUS] > math.log(config.max_radius)
    doomed |= ~live.isfinite().all(dim=0)
    if config.judgements:
        doomed |= gaussian_map.observations.strikes[: gaussian_map.count] >= config.judgements
    return gaussian_map.remove(doomed)


def judge(gaussian_map: GaussianMap, config: PruningConfig) -> None:
    """Score the spheres that a counted step has seen since the last call, and count strikes.

    Spheres that no step has seen keep score and strikes.
    """
    count, observations = gaussian_map.count, gaussian_map.observations
    statistics = observations.statistics[:, :count]
    seen = (statistics[c.STAT_PIXELS] > 0).nonzero()[:, 0]
    if len(seen):
        logit = gaussian_map.live[c.ROW_OPACITY_LOGIT, seen]
        score = scores(statistics[:, seen], torch.sigmoid(logit), config)
        largest_share = statistics[c.STAT_MAX_WEIGHT, seen]
        failed = (score < config.threshold) & (largest_share < config.dispensable_share)
        observations.score[seen] = score
        observations.strikes[seen] = torch.where(failed, observations.strikes[seen] + 1, 0)
    statistics[c.STAT_PIXELS] = 0


def scores(statistics: torch.Tensor, opacity: torch.Tensor, config: PruningConfig) -> torch.Tensor:
    """Return the scores (n,) of spheres in view, from their statistics (4, n) and opacity (n,).

    They are comparable only among each other: each part is taken relative to the spheres in view.
    """
    weight = statistics[c.STAT_WEIGHT]
    error = statistics[c.STAT_WEIGHTED_ERROR] / weight.clamp(min=torch.finfo(weight.dtype).tiny)
    contribution = robust_deviations(statistics[c.STAT_MAX_WEIGHT])
    limited = robust_deviations(error).clamp(-config.error_limit, config.error_limit)
    score = config.contribution_weight * contribution - config.error_weight * limited
    if config.opacity_weight:
        score += config.opacity_weight * robust_deviations(opacity)
    return score


def robust_deviations(values: torch.Tensor) -> torch.Tensor:
    """Return how far ``values`` (n,) lie from their median, in robust standard deviations."""
    from_median = values - values.median()
    deviation = _DEVIATIONS * from_median.abs().median()
    return from_median / deviation if deviation > 0 else torch.zeros_like(values)


def make_room(gaussian_map: GaussianMap, wanted: int) -> int:
    """Remove the spheres of the lowest scores until ``wanted`` more fit; returns how many went.

    Of equal scores the less opaque goes, of equal opacities the older one.
    """
    excess = gaussian_map.count + wanted - gaussian_map.capacity
    if excess <= 0:
        return 0
    count = gaussian_map.count
    by_opacity = torch.argsort(gaussian_map.live[c.ROW_OPACITY_LOGIT], stable=True)
    by_score = torch.argsort(gaussian_map.observations.score[:count][by_opacity], stable=True)
    doomed = torch.zeros(count, dtype=torch.bool, device=by_score.device)
    doomed[by_opacity[by_score[:excess]]] = True
    return gaussian_map.remove(doomed)
