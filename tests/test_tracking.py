"""The tracker: lists used again, sampled pixels, and what they change."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from gsslam import _native, geometry
from gsslam.config import TrackingConfig
from gsslam.datasets import open_dataset
from gsslam.frame import Frame
from gsslam.pyramid import build_pyramid
from gsslam.raster.plan import RasterPlan
from gsslam.tracking import PoseEstimate, Tracker
from tests.raster.scenes import random_pose, random_spheres

LOW_PASS = 0.3
CONFIG = TrackingConfig(silhouette_threshold=0.5)


@cache
def scene() -> tuple[torch.Tensor, np.ndarray, Frame]:
    """Return spheres, a true T_camera_world, and the frame that is seen from there."""
    rng = np.random.default_rng(5)
    spheres = random_spheres(rng, 4000, 2.0)
    spheres[4] += 1.5
    T = random_pose(rng).numpy()
    frame = open_dataset("synthetic/room", None, resolution=(160, 120), max_frames=1)[0]
    plan = RasterPlan()
    plan.project(spheres, 4000, frame.camera, T, LOW_PASS)
    image = torch.empty(plan.image_shape)
    plan.forward(image)
    rgb = (255 * image[:3].clamp(0, 1)).byte().permute(1, 2, 0).contiguous().numpy()
    depth = (image[3] / image[4].clamp(min=0.1)).numpy()
    return spheres, T, replace(frame, rgb=rgb, depth=depth)


def estimate(config: TrackingConfig, list_margin: float, guesses: int = 3) -> PoseEstimate:
    spheres, T, frame = scene()
    rng = np.random.default_rng(1)
    starts = [geometry.exp_se3(0.01 * rng.normal(size=6)) @ T for _ in range(guesses)]
    tracker = Tracker(config, LOW_PASS, list_margin=list_margin)
    pyramid = build_pyramid(frame, config.levels)
    return tracker.estimate(spheres, spheres.shape[1], pyramid, starts, 1.02, 0.01)


def distance(found: PoseEstimate) -> float:
    """Return the largest entry of the twist, metres and radians, to the true pose."""
    return float(
        np.abs(geometry.log_se3(found.T_camera_world @ geometry.inverse(scene()[1]))).max()
    )


@pytest.mark.parametrize("guesses", [1, 3])
def test_lists_used_again_find_the_pose_that_fresh_ones_find(isa: str, guesses: int) -> None:
    fresh = estimate(CONFIG, 0.0, guesses)
    again = estimate(CONFIG, 2.0, guesses)
    assert distance(fresh) < 2e-4
    assert distance(again) < 1e-3
    np.testing.assert_allclose(again.T_camera_world, fresh.T_camera_world, atol=1e-3)
    assert again.valid_share == pytest.approx(fresh.valid_share, abs=0.01)
    # The order is that of a pose up to two pixels away, so that colours differ a little.
    assert again.equations.colour_rms < 0.01


@pytest.mark.parametrize("max_pixels", [9600, 4800, 2400])
def test_sampled_pixels_find_the_pose(isa: str, max_pixels: int) -> None:
    everything = estimate(CONFIG, 2.0)
    sampled = estimate(replace(CONFIG, max_pixels=max_pixels), 2.0)
    assert sampled.equations.pixels <= max_pixels
    assert distance(sampled) < 2e-3
    # The gates see shares of the pixels that were asked.
    assert sampled.valid_share == pytest.approx(everything.valid_share, abs=0.05)
    assert not sampled.verdict(CONFIG)


def test_an_estimate_does_not_remember_the_frame_before() -> None:
    spheres, T, frame = scene()
    pyramid = build_pyramid(frame, CONFIG.levels)
    tracker = Tracker(CONFIG, LOW_PASS)
    start = geometry.exp_se3(np.full(6, 0.004)) @ T
    first = tracker.estimate(spheres, spheres.shape[1], pyramid, [start], 1.0, 0.0)
    other = spheres.clone()
    other[:3] += 0.01
    tracker.estimate(other, other.shape[1], pyramid, [T, start], 1.0, 0.0)
    again = tracker.estimate(spheres, spheres.shape[1], pyramid, [start], 1.0, 0.0)
    assert np.array_equal(first.T_camera_world, again.T_camera_world)


def test_bytes_do_not_depend_on_the_number_of_threads(isa: str) -> None:
    results = set()
    for threads in (1, 2, 3, 2):
        _native.set_thread_count(threads)
        found = estimate(replace(CONFIG, max_pixels=4800), 2.0)
        results.add((found.T_camera_world.tobytes(), found.gain, found.bias, found.iterations))
    assert len(results) == 1
