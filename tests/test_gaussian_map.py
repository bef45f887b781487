"""The map's bookkeeping: nothing lost, nothing mixed up."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsslam import gaussian_map as gaussian_map_module
from gsslam.config import MappingConfig, SlamConfig
from gsslam.datasets import open_dataset
from gsslam.errors import CheckpointError, ConfigError
from gsslam.gaussian_map import GaussianMap
from gsslam.slam import Slam
from tests.conftest import usable_device


def numbered(numbers: list[int]) -> torch.Tensor:
    """Spheres (8, n) whose every value tells which sphere it belongs to."""
    return torch.tensor(numbers, dtype=torch.float32) + torch.arange(8)[:, None] / 16


def mark(gaussian_map: GaussianMap) -> None:
    """Give every live sphere moments and steps that tell which sphere they belong to."""
    live = slice(gaussian_map.count)
    number = gaussian_map.parameters[0, live]
    gaussian_map.adam.first_moment[:, live] = 2 * number
    gaussian_map.adam.second_moment[:, live] = 3 * number
    gaussian_map.adam.steps[live] = number.int()


def check(gaussian_map: GaussianMap, expected: set[int]) -> None:
    live = slice(gaussian_map.count)
    number = gaussian_map.parameters[0, live]
    assert sorted(number.tolist()) == sorted(expected)
    assert torch.equal(gaussian_map.live, number + torch.arange(8)[:, None] / 16)
    assert (gaussian_map.adam.first_moment[:, live] == 2 * number).all()
    assert (gaussian_map.adam.second_moment[:, live] == 3 * number).all()
    assert (gaussian_map.adam.steps[live] == number.int()).all()


@given(st.lists(st.booleans(), max_size=40))
def test_removal_keeps_the_others_whole_and_contiguous(doomed: list[bool]) -> None:
    gaussian_map = GaussianMap(50)
    gaussian_map.insert(numbered(list(range(len(doomed)))))
    mark(gaussian_map)
    removed = gaussian_map.remove(torch.tensor(doomed, dtype=torch.bool))
    assert removed == sum(doomed)
    assert gaussian_map.count == len(doomed) - removed
    check(gaussian_map, {i for i, gone in enumerate(doomed) if not gone})


def test_queries_move_with_their_spheres() -> None:
    gaussian_map = GaussianMap(5, num_features=3)
    gaussian_map.insert(numbered([1, 2, 3, 4]))
    gaussian_map.live_queries.copy_(gaussian_map.live[0])
    gaussian_map.query_adam.steps[:4] = gaussian_map.live[0].int()
    gaussian_map.remove(torch.tensor([False, True, False, False]))
    gaussian_map.insert(numbered([9]))
    assert gaussian_map.live[0].tolist() == [1, 4, 3, 9]
    assert torch.equal(gaussian_map.live_queries, torch.tensor([1.0, 4, 3, 0]).expand(3, 4))
    assert gaussian_map.query_adam.steps[:4].tolist() == [1, 4, 3, 0]
    again = GaussianMap(4, num_features=3)
    again.restore(gaussian_map.dump())
    assert torch.equal(again.live_queries, gaussian_map.live_queries)
    assert torch.equal(again.live, gaussian_map.live)
    with pytest.raises(CheckpointError, match="other arrays"):
        GaussianMap(4).restore(gaussian_map.dump())


def test_insertion_stops_at_the_capacity() -> None:
    gaussian_map = GaussianMap(5)
    assert gaussian_map.insert(numbered([1, 2, 3])) == 3
    assert gaussian_map.insert(numbered([4, 5, 6, 7])) == 2
    assert gaussian_map.insert(numbered([8])) == 0
    assert gaussian_map.count == gaussian_map.capacity == 5
    assert torch.equal(gaussian_map.live, numbered([1, 2, 3, 4, 5]))


def test_a_reused_slot_starts_afresh() -> None:
    gaussian_map = GaussianMap(4)
    gaussian_map.insert(numbered([1, 2, 3, 4]))
    mark(gaussian_map)
    gaussian_map.remove(torch.tensor([False, True, False, True]))
    addresses = [array.data_ptr() for array in gaussian_map._arrays()]
    assert gaussian_map.insert(numbered([9])) == 1
    assert torch.equal(gaussian_map.live[:, 2:], numbered([9]))
    assert not gaussian_map.adam.first_moment[:, 2].any()
    assert not gaussian_map.adam.second_moment[:, 2].any()
    assert gaussian_map.adam.steps[2] == 0
    # Nothing was allocated for it.
    assert addresses == [array.data_ptr() for array in gaussian_map._arrays()]


def test_state_goes_round_and_is_a_copy() -> None:
    rng = np.random.default_rng(0)
    gaussian_map = GaussianMap(10)
    parameters = torch.from_numpy(rng.normal(size=(8, 7)).astype(np.float32))
    gaussian_map.insert(parameters)
    state = gaussian_map.state()
    gaussian_map.parameters.zero_()
    assert len(state) == 7
    assert np.array_equal(state.xyz, parameters[:3].T)
    assert np.array_equal(state.rgb, parameters[5:].T)
    other = GaussianMap(7)
    other.insert(numbered([1, 2]))
    mark(other)
    other.gradient.fill_(1)
    other.load(state)
    assert torch.equal(other.live, parameters)
    assert not other.adam.steps.any()
    assert not other.gradient.any()
    with pytest.raises(ConfigError, match=r"7 spheres do not fit into map\.capacity 6"):
        GaussianMap(6).load(state)


def test_bytes_per_sphere_counts_all_arrays() -> None:
    # Parameters, gradient, two moments; steps; four statistics, score and strikes.
    assert GaussianMap(3).bytes_per_sphere() == 4 * (4 * 8 + 1 + 6)
    # Queries have counts of steps and views of their own.
    assert GaussianMap(3, num_features=16).bytes_per_sphere() == 4 * (4 * 24 + 3 + 6)


def little_room(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let maps begin with few columns, as they do on a GPU."""
    monkeypatch.setattr(gaussian_map_module, "first_room", lambda capacity, device: count)


def test_a_map_that_had_to_grow_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = []
    for count in (100, 3):
        little_room(monkeypatch, count)
        grown = GaussianMap(100, num_features=4)
        for first in range(0, 40, 5):
            grown.insert(numbered(list(range(first, first + 5))))
            mark(grown)
            grown.queries[:, : grown.count] = grown.parameters[0, : grown.count]
            grown.observations.score[: grown.count] = grown.parameters[0, : grown.count]
            grown.remove(torch.arange(grown.count) % 5 == 2)
        maps.append(grown)
    ours, theirs = maps[1].dump(), maps[0].dump()
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert maps[1].with_queries.shape[1] == 24  # three columns, doubled
    assert (maps[1].capacity, maps[1].memory()) == (100, maps[0].memory())
    little_room(monkeypatch, 5)
    resumed = GaussianMap(100, num_features=4)
    resumed.restore(ours)
    assert all(np.array_equal(resumed.dump()[name], ours[name]) for name in ours)


def test_a_run_whose_map_had_to_grow_has_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset("synthetic/room", None, resolution=(48, 36), max_frames=10)
    config = SlamConfig(mapping=MappingConfig(iterations=3, first_iterations=3))
    found = []
    for count in (config.map.capacity, 100):
        little_room(monkeypatch, count)
        with Slam(config, dataset.camera) as slam:
            used = [slam.track(dataset[i]).memory_mb for i in range(10)]
            found.append((slam.finish().T_world_camera, slam.map.live.clone(), used))
            assert slam.map.parameters.shape[1] < 2 * max(count, slam.map.count)
    assert np.array_equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


@pytest.mark.gpu
def test_on_a_gpu_only_who_wants_a_gradient_makes_one() -> None:
    usable_device("cuda")
    gaussian_map = GaussianMap(100, 16, "cuda")
    before = gaussian_map.memory().moments
    assert gaussian_map.gradient.shape == (8, 100)
    assert not gaussian_map.gradient_with_queries.any()
    assert gaussian_map.memory().moments == before + 4 * 24 * 100
    # The same one every time.
    gaussian_map.query_gradient.fill_(2)
    assert (gaussian_map.gradient_with_queries[8:] == 2).all()
