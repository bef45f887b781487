"""Removal of spheres."""

from __future__ import annotations

import math

import pytest
import torch

from gsslam.config import PruningConfig
from gsslam.gaussian_map import GaussianMap
from gsslam.pruning import make_room, prune_faint_and_large


def logit(opacity: float) -> float:
    return math.log(opacity / (1 - opacity))


def map_of(spheres: list[tuple[float, float]], capacity: int = 10) -> GaussianMap:
    """Spheres of given radius (metres) and opacity; red holds their number."""
    gaussian_map = GaussianMap(capacity)
    parameters = torch.zeros(8, len(spheres))
    for i, (radius, opacity) in enumerate(spheres):
        parameters[3, i], parameters[4, i], parameters[5, i] = math.log(radius), logit(opacity), i
    gaussian_map.insert(parameters)
    return gaussian_map


def numbers(gaussian_map: GaussianMap) -> list[int]:
    return sorted(int(i) for i in gaussian_map.live[5])


def test_faint_and_large_spheres_go() -> None:
    spheres = [(0.1, 0.9), (0.1, 0.049), (0.1, 0.051), (0.51, 0.9), (0.49, 0.9)]
    gaussian_map = map_of(spheres)
    assert prune_faint_and_large(gaussian_map, PruningConfig(0.05, 0.5)) == 2
    assert numbers(gaussian_map) == [0, 2, 4]
    assert prune_faint_and_large(gaussian_map, PruningConfig(0.05, 0.5)) == 0


@pytest.mark.parametrize("row", range(8))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_sphere_that_is_not_finite_goes(row: int, bad: float) -> None:
    gaussian_map = map_of([(0.1, 0.9)] * 3)
    gaussian_map.parameters[row, 1] = bad
    assert prune_faint_and_large(gaussian_map, PruningConfig()) == 1
    assert numbers(gaussian_map) == [0, 2]


def test_room_is_made_by_the_least_opaque() -> None:
    opacities = [0.5, 0.2, 0.9, 0.2, 0.7, 0.1]
    gaussian_map = map_of([(0.1, opacity) for opacity in opacities], capacity=8)
    assert make_room(gaussian_map, 2) == 0
    # Of equals the older one goes, every time.
    assert make_room(gaussian_map, 4) == 2
    assert numbers(gaussian_map) == [0, 2, 3, 4]
    assert gaussian_map.count + 4 == gaussian_map.capacity
    assert make_room(gaussian_map, 8) == 4
    assert gaussian_map.count == 0
