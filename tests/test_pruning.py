"""Removal of spheres, and the scores that decide it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gsslam.config import PruningConfig
from gsslam.gaussian_map import GaussianMap
from gsslam.pruning import decay_of_window, judge, make_room, prune, robust_deviations, scores
from gsslam.raster import constants as c

CONFIG = PruningConfig(judgements=2, threshold=-0.5, error_weight=0.5)
KEEP = replace(CONFIG, judgements=0)


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


def show(gaussian_map: GaussianMap, largest: list[float], error: list[float] | None = None) -> None:
    """Write what a step would have seen; a largest weight of 0: the sphere was not in view."""
    statistics = gaussian_map.observations.statistics
    n = len(largest)
    seen = torch.tensor(largest)
    statistics[c.STAT_MAX_WEIGHT, :n] = seen
    statistics[c.STAT_WEIGHT, :n] = 3 * seen
    statistics[c.STAT_WEIGHTED_ERROR, :n] = 3 * seen * torch.tensor(error or [0.02] * n)
    statistics[c.STAT_PIXELS, :n] = 5.0 * (seen > 0)


def test_faint_and_large_spheres_go() -> None:
    spheres = [(0.1, 0.9), (0.1, 0.049), (0.1, 0.051), (0.51, 0.9), (0.49, 0.9)]
    gaussian_map = map_of(spheres)
    assert prune(gaussian_map, replace(KEEP, min_opacity=0.05, max_radius=0.5)) == 2
    assert numbers(gaussian_map) == [0, 2, 4]
    assert prune(gaussian_map, KEEP) == 0


@pytest.mark.parametrize("row", range(8))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_sphere_that_is_not_finite_goes(row: int, bad: float) -> None:
    gaussian_map = map_of([(0.1, 0.9)] * 3)
    gaussian_map.parameters[row, 1] = bad
    assert prune(gaussian_map, PruningConfig()) == 1
    assert numbers(gaussian_map) == [0, 2]


def test_a_sphere_goes_after_enough_judgements_in_a_row() -> None:
    gaussian_map = map_of([(0.1, 0.9)] * 5)
    low, high = [0.5, 0.5, 0.45, 0.45, 0.01], [0.5, 0.5, 0.45, 0.45, 0.5]
    show(gaussian_map, low)
    assert prune(gaussian_map, CONFIG) == 0
    show(gaussian_map, high)  # one judgement over the threshold, and the count starts anew
    assert prune(gaussian_map, CONFIG) == 0
    show(gaussian_map, low)
    assert prune(gaussian_map, CONFIG) == 0
    show(gaussian_map, low)
    assert prune(gaussian_map, CONFIG) == 1
    assert numbers(gaussian_map) == [0, 1, 2, 3]


def test_a_sphere_that_has_a_pixel_to_itself_stays_whatever_its_score() -> None:
    config = replace(CONFIG, dispensable_share=0.12)
    gaussian_map = map_of([(0.1, 0.9)] * 6)
    for _ in range(3):
        # Nearly equal shares make small differences many deviations; so does an outlying error.
        show(gaussian_map, [0.5, 0.5, 0.51, 0.4, 0.12, 0.1], [0.02, 0.02, 0.021, 0.9, 0.02, 0.02])
        prune(gaussian_map, config)
    assert numbers(gaussian_map) == [0, 1, 2, 3, 4]


def test_a_sphere_that_no_view_saw_is_not_judged() -> None:
    gaussian_map = map_of([(0.1, 0.9)] * 6)
    seen = [0.5, 0.4, 0.6, 0.3, 0.01, 0.0]
    show(gaussian_map, seen)
    judge(gaussian_map, CONFIG)
    observations = gaussian_map.observations
    assert observations.strikes[:6].tolist()[4:] == [1, 0]
    assert observations.score[5] == 0
    before = observations.score.clone()
    # Nothing was seen since: nothing is judged twice.
    judge(gaussian_map, CONFIG)
    assert torch.equal(observations.score, before)
    assert observations.strikes[4] == 1


def test_score_is_the_sum_of_its_parts() -> None:
    rng = np.random.default_rng(0)
    statistics = torch.from_numpy(rng.uniform(0.1, 1, size=(4, 101)))
    opacity = torch.from_numpy(rng.uniform(0.1, 1, size=101))
    statistics[c.STAT_WEIGHTED_ERROR, 7] *= 50

    def z(x: np.ndarray) -> np.ndarray:
        return (x - np.median(x)) / (1.4826 * np.median(np.abs(x - np.median(x))))

    s = statistics.numpy()
    error = z(s[c.STAT_WEIGHTED_ERROR] / s[c.STAT_WEIGHT])
    expected = 2 * z(s[c.STAT_MAX_WEIGHT]) - 0.7 * np.clip(error, -1.5, 1.5)
    expected += 0.2 * z(opacity.numpy())
    config = replace(
        CONFIG, contribution_weight=2, error_weight=0.7, error_limit=1.5, opacity_weight=0.2
    )
    actual = scores(statistics, opacity, config)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
    assert error[7] > 10


def test_deviations_are_robust_and_bounded_where_all_are_equal() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 1e9])
    assert robust_deviations(values)[:4].tolist() == pytest.approx(
        [-2 / 1.4826, -1 / 1.4826, 0, 1 / 1.4826]
    )
    assert robust_deviations(torch.full((4,), 0.3)).tolist() == [0] * 4


def test_a_window_of_steps_keeps_its_share() -> None:
    assert decay_of_window(1) == 0
    assert decay_of_window(24) ** 24 == pytest.approx(math.exp(-1), abs=0.01)


def test_room_is_made_by_the_lowest_scores_then_the_least_opaque() -> None:
    opacities = [0.5, 0.2, 0.9, 0.2, 0.7, 0.1]
    gaussian_map = map_of([(0.1, opacity) for opacity in opacities], capacity=8)
    gaussian_map.observations.score[2] = -3
    assert make_room(gaussian_map, 2) == 0
    # Of equals the older one goes, every time.
    assert make_room(gaussian_map, 5) == 3
    assert numbers(gaussian_map) == [0, 3, 4]
    assert gaussian_map.count + 5 == gaussian_map.capacity
    assert make_room(gaussian_map, 8) == 3
    assert gaussian_map.count == 0


def test_what_was_seen_moves_with_its_sphere() -> None:
    gaussian_map = map_of([(0.1, 0.9), (0.1, 0.01), (0.1, 0.8)])
    show(gaussian_map, [0.5, 0.4, 0.3])
    gaussian_map.observations.score[:3] = torch.tensor([1.0, 2.0, 3.0])
    gaussian_map.observations.strikes[:3] = torch.tensor([4, 5, 6], dtype=torch.int32)
    assert prune(gaussian_map, KEEP) == 1
    assert numbers(gaussian_map) == [0, 2]
    assert gaussian_map.observations.score[:2].tolist() == [1, 3]
    assert gaussian_map.observations.strikes[:2].tolist() == [4, 6]
    assert gaussian_map.observations.statistics[c.STAT_MAX_WEIGHT, :2].tolist() == pytest.approx(
        [0.5, 0.3]
    )
    # A slot that is used again starts anew.
    gaussian_map.insert(torch.zeros(8, 1))
    assert gaussian_map.observations.score[2] == 0
    assert gaussian_map.observations.statistics[:, 2].tolist() == [0] * 4
