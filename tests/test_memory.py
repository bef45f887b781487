"""The memory budget: how it is divided, and that it holds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gsslam.camera import Camera
from gsslam.config import KeyframeConfig, MapConfig, MappingConfig, SlamConfig
from gsslam.datasets import open_dataset
from gsslam.errors import ConfigError
from gsslam.gaussian_map import GaussianMap
from gsslam.memory import MemoryUse, parse_megabytes, plan_memory
from gsslam.slam import Slam

CAMERA = Camera(320, 240, 260.0, 260.0, 160.0, 120.0)
SPHERE = GaussianMap(1).bytes_per_sphere()


def with_budget(megabytes: float, capacity: int = 200_000) -> SlamConfig:
    return SlamConfig(map=MapConfig(capacity=capacity, memory_budget_mb=megabytes))


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("512MB", 512), ("512", 512), ("2GB", 2000), ("1.5 gb", 1500), ("1MiB", 1.048576)],
)
def test_sizes_are_read(text: str, megabytes: float) -> None:
    assert parse_megabytes(text) == pytest.approx(megabytes)


@pytest.mark.parametrize("text", ["", "MB", "-5MB", "0MB", "12 parsecs", "1e3MB", "five"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a size such as 512MB or 2GB"):
        parse_megabytes(text)


def test_uses_add_up_part_by_part() -> None:
    total = MemoryUse(1, 2, 3, 4, 5, 6) + MemoryUse(10, 20, 30, 40, 50, 60)
    assert total == MemoryUse(11, 22, 33, 44, 55, 66)
    assert total.total == 231


def test_without_a_budget_the_capacity_is_the_limit() -> None:
    plan = plan_memory(with_budget(0), CAMERA, "cpu", SPHERE)
    assert (plan.capacity, plan.keyframes, plan.mapper_limit) == (200_000, None, None)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_larger_budget_holds_more(device: str) -> None:
    plans = [plan_memory(with_budget(b, 10**6), CAMERA, device, SPHERE) for b in (100, 200, 800)]
    capacities = [plan.capacity for plan in plans]
    keyframes = [plan.keyframes or 0 for plan in plans]
    assert capacities == sorted(capacities)
    assert keyframes == sorted(keyframes)
    assert capacities[-1] > 2 * capacities[0]
    # What the capacity does not need is the keyframes'.
    small = plan_memory(with_budget(800, 30_000), CAMERA, device, SPHERE)
    assert small.capacity == 30_000
    assert (small.keyframes or 0) > keyframes[-1]


def test_a_budget_too_small_for_a_frame_says_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"budget of 20 MB is too small .* 320x240: give at"):
        plan_memory(with_budget(20), CAMERA, "cpu", SPHERE)
    with pytest.raises(ConfigError) as error:
        Slam(with_budget(20), CAMERA)
    least = int(str(error.value).split("at least ")[1].split(" MB")[0])
    assert plan_memory(with_budget(least), CAMERA, "cpu", SPHERE).capacity >= 320 * 240 // 4
    with pytest.raises(ConfigError):
        plan_memory(with_budget(least - 1), CAMERA, "cpu", SPHERE)


def test_spheres_and_keyframes_go_before_the_budget_is_passed() -> None:
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=24)
    config = replace(
        with_budget(4.4),
        mapping=MappingConfig(iterations=4, first_iterations=8),
        keyframes=KeyframeConfig(max_interval=2),
    )
    counted = []
    for threads in (1, 2):
        with Slam(config, dataset.camera, threads=threads) as slam:
            uses = [slam.track(dataset[i]).memory_mb for i in range(len(dataset))]
            with_images = [keyframe.index for keyframe in slam.keyframes if keyframe.has_images]
            assert len(with_images) < len(slam.keyframes)
            assert with_images[0] == 0
            assert with_images[-1] == slam.keyframes[-1].index
            assert slam.map.count <= slam.map.capacity
            assert len(slam.finish()) == len(dataset)
        counted.append(uses)
    assert max(counted[0]) <= 4.4
    assert counted[0] == counted[1]


def test_lists_longer_than_planned_cost_spheres(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=9)
    config = with_budget(9)
    with Slam(config, dataset.camera) as slam:
        slam.track(dataset[0])
        count, mapper = slam.map.count, slam._mapper
        limit = int(1.08 * mapper.memory().total)
        monkeypatch.setattr(mapper, "_plan", replace(mapper._plan, mapper_limit=limit))
        for i in range(1, len(dataset)):
            slam.track(dataset[i])
        assert slam.map.count < count
        assert mapper.memory().total <= limit


_MEASURE = """
import sys
from pathlib import Path
import numpy as np, torch
torch.set_num_threads(1)
from gsslam.config import MapConfig, MappingConfig, SlamConfig
from gsslam.datasets import open_dataset
from gsslam.slam import Slam

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

budget = float(sys.argv[1])
dataset = open_dataset("synthetic/room", None, resolution=(320, 240), max_frames=24)
config = SlamConfig(map=MapConfig(memory_budget_mb=budget),
                    mapping=MappingConfig(iterations=3, first_iterations=3))
warm = open_dataset("synthetic/room", None, resolution=(48, 36), max_frames=6)
with Slam(SlamConfig(), warm.camera) as slam:
    for i in range(len(warm)):
        slam.track(warm[i])
frames = [dataset[i] for i in range(len(dataset))]
del slam
before = resident_mb()
slam = Slam(config, dataset.camera)
for frame in frames:
    result = slam.track(frame)
    print(resident_mb() - before, result.memory_mb)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_the_process_takes_no_more_than_the_budget() -> None:
    budget = 90
    command = [sys.executable, "-c", _MEASURE, str(budget)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    measured, counted = ([float(value) for value in column] for column in zip(*lines, strict=True))
    assert len(lines) == 24
    assert max(measured) <= budget
    assert max(counted) <= budget
    # What is counted is what is taken, but for what the allocator holds back.
    assert max(measured) < 1.25 * max(counted) + 12
