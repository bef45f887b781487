"""The native thread pool: its size, and several Python threads that use it at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch

from gsslam import _native
from gsslam.raster.plan import RasterPlan
from tests.raster.scenes import CAMERA, random_pose, random_spheres


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_count_is_what_was_asked_for(count: int) -> None:
    _native.set_thread_count(count)
    assert _native.thread_count() == count


def test_zero_means_every_processor_that_this_process_may_use() -> None:
    _native.set_thread_count(0)
    assert _native.thread_count() == len(os.sched_getaffinity(0))


def render_and_differentiate(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    spheres, T = random_spheres(rng, 2000), random_pose(rng)
    plan = RasterPlan()
    plan.project(spheres, 2000, CAMERA, T.numpy())
    image = torch.empty(plan.image_shape)
    plan.forward(image)
    gradient = torch.zeros_like(spheres)
    pose = plan.backward(image, torch.ones_like(image), gradient)
    return image.numpy().tobytes() + gradient.numpy().tobytes() + pose.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
def test_concurrent_callers_get_what_each_would_get_alone(threads: int) -> None:
    _native.set_thread_count(threads)
    callers, rounds = 4, 8
    alone = [render_and_differentiate(seed) for seed in range(callers)]
    start = Barrier(callers)

    def work(seed: int) -> set[bytes]:
        start.wait()
        return {render_and_differentiate(seed) for _ in range(rounds)}

    with ThreadPoolExecutor(callers) as pool:
        together = list(pool.map(work, range(callers)))
    assert together == [{result} for result in alone]


def test_the_size_may_change_while_others_work() -> None:
    expected = render_and_differentiate(0)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(render_and_differentiate, 0) for _ in range(20)]
        for count in (3, 1, 2, 4, 1):
            _native.set_thread_count(count)
        assert {future.result() for future in futures} == {expected}
