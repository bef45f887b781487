"""What mapping has seen of each sphere: the material that pruning judges."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gsslam.raster import constants as c


@dataclass
class Observations:
    """Arrays of a map of ``capacity`` spheres; a new sphere starts with zeros."""

    # (4, capacity) float32, rows STAT_*: over the steps that saw the sphere, fading. The pixels are
    # those since the last judgement only.
    statistics: torch.Tensor
    # (capacity,) float32: what the last judgement gave; 0, that of an average sphere, before it.
    score: torch.Tensor
    # (capacity,) int32: judgements in a row that were under the threshold.
    strikes: torch.Tensor

    @staticmethod
    def zeros(capacity: int, device: torch.device | str = "cpu") -> Observations:
        """Return the observations of spheres that were never seen."""
        return Observations(
            torch.zeros(c.STATISTICS, capacity, device=device),
            torch.zeros(capacity, device=device),
            torch.zeros(capacity, dtype=torch.int32, device=device),
        )
