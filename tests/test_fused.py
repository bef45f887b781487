"""The fused CUDA steps against the same algorithms step by step on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gsslam import gaussian_map, geometry
from gsslam.config import MappingConfig, SlamConfig, TrackingConfig
from gsslam.datasets import open_dataset
from gsslam.fused import LIST_MARGIN
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.optimize import MapOptimizer
from gsslam.pyramid import ImageLevel, build_pyramid
from gsslam.raster.plan import RasterPlan
from gsslam.raster.reference import rasterize_reference
from gsslam.slam import Slam
from gsslam.tracking import Tracker
from tests.conftest import usable_device
from tests.raster.scenes import CAMERA, random_pose, random_spheres

pytestmark = pytest.mark.gpu
LOW_PASS = 0.3
TRACKING = TrackingConfig(silhouette_threshold=0.5)


@pytest.fixture(autouse=True)
def cuda() -> None:
    usable_device("cuda")


def scene(n: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    spheres = random_spheres(rng, n, 2.0)
    spheres[4] += 1.5
    return spheres


def keyframes(spheres: torch.Tensor, device: str) -> list[Keyframe]:
    rng = np.random.default_rng(3)
    result = []
    for index in range(3):
        T = random_pose(rng).numpy()
        planes = rasterize_reference(spheres, torch.from_numpy(T), CAMERA, LOW_PASS)
        noise = torch.from_numpy(0.05 * rng.normal(size=(3, CAMERA.height, CAMERA.width)))
        rgb = (255 * (planes[:3] + noise).clamp(0, 1)).byte().contiguous()
        depth = (planes[3] / planes[4].clamp(min=0.1)).float()
        start = geometry.exp_se3(0.004 * rng.normal(size=6)) @ T
        result.append(Keyframe(index, start, 1.05, -0.01, rgb.to(device), depth.to(device)))
    return result


def optimise(
    spheres: torch.Tensor,
    device: str,
    steps: int,
    observed: int = 0,
    *,
    images_on: str | None = None,
    optimizer: MapOptimizer | None = None,
    capacity: int | None = None,
):
    gaussian_map = GaussianMap(capacity or spheres.shape[1] + 7, device=device)
    gaussian_map.insert(spheres.to(device))
    frames = keyframes(scene(400), images_on or device)
    optimizer = optimizer or MapOptimizer(MappingConfig(), CAMERA, LOW_PASS, device, 0.75)
    tasks = [(i % 3, i % 3 > 0) for i in range(steps)]
    losses = optimizer.run(gaussian_map, frames, tasks, observed)
    return gaussian_map, frames, np.array(losses)


@pytest.mark.parametrize("steps", [1, 9])
def test_mapping_takes_the_steps_of_the_cpu(steps: int) -> None:
    spheres = scene(400)
    spheres[:3] += 0.01 * torch.randn(3, 400, generator=torch.Generator().manual_seed(0))
    ours, our_frames, our_losses = optimise(spheres, "cuda", steps)
    theirs, their_frames, their_losses = optimise(spheres, "cpu", steps)
    np.testing.assert_allclose(our_losses, their_losses, rtol=2e-4)
    assert torch.equal(ours.adam.steps.cpu(), theirs.adam.steps)
    # Adam's first steps have the size of the learning rate whatever the gradient's: only entries
    # whose gradient is all rounding may differ.
    difference = (ours.parameters.cpu() - theirs.parameters).abs()
    assert (difference < 1e-4).float().mean() > 0.98
    for a, b in zip(our_frames, their_frames, strict=True):
        np.testing.assert_allclose(a.T_camera_world, b.T_camera_world, atol=2e-5)
        assert (a.gain, a.bias) == pytest.approx((b.gain, b.bias), abs=2e-5)
        assert a.steps == b.steps


@pytest.mark.parametrize(("steps", "observed"), [(1, 1), (9, 3)])
def test_mapping_observes_what_the_cpu_observes(steps: int, observed: int) -> None:
    ours, _, our_losses = optimise(scene(400), "cuda", steps, observed)
    theirs, _, _ = optimise(scene(400), "cpu", steps, observed)
    statistics = theirs.observations.statistics
    assert statistics[0].count_nonzero() > 100
    for row in range(len(statistics)):
        difference = ours.observations.statistics.cpu()[row] - statistics[row]
        assert difference.norm() < 2e-3 * statistics[row].norm(), f"row {row}"
    # Observing changes nothing else.
    plain, _, plain_losses = optimise(scene(400), "cuda", steps)
    np.testing.assert_allclose(our_losses, plain_losses, rtol=1e-5)
    assert not plain.observations.statistics.any()
    again, _, _ = optimise(scene(400), "cuda", steps, observed)
    assert torch.equal(ours.observations.statistics, again.observations.statistics)


def test_mapping_gives_the_same_bytes_every_time() -> None:
    first = optimise(scene(3000, 1), "cuda", 12)
    for _ in range(5):
        again = optimise(scene(3000, 1), "cuda", 12)
        assert torch.equal(first[0].parameters, again[0].parameters)
        assert np.array_equal(first[2], again[2])
        for a, b in zip(first[1], again[1], strict=True):
            assert np.array_equal(a.T_camera_world, b.T_camera_world)


def test_mapping_makes_room_and_loses_no_step() -> None:
    spheres = scene(40_000, 2)
    spheres[3] += 1.5  # more cells than the first size of the lists holds
    gaussian_map, frames, losses = optimise(spheres, "cuda", 6)
    assert np.isfinite(losses).all()
    assert (losses > 0).all()
    assert [frame.steps for frame in frames] == [0, 2, 2]
    assert int(gaussian_map.adam.steps.max()) == 6


def test_images_from_the_host_give_the_bytes_of_images_on_the_gpu() -> None:
    there = optimise(scene(3000, 1), "cuda", 12, 3)
    away = optimise(scene(3000, 1), "cuda", 12, 3, images_on="cpu")
    assert torch.equal(there[0].parameters, away[0].parameters)
    assert torch.equal(there[0].observations.statistics, away[0].observations.statistics)
    assert np.array_equal(there[2], away[2])


def test_a_plan_that_grew_with_its_map_gives_the_bytes_of_a_new_one() -> None:
    grown = MapOptimizer(MappingConfig(), CAMERA, LOW_PASS, "cuda", 0.75)
    # More and fewer spheres, in arrays of all lengths: with spare room, and past all of it.
    for count, capacity in ((300, 90_000), (4000, 90_000), (9000, 9000), (5000, 70_000), (1, 1)):
        spheres = scene(count, count)
        ours = optimise(spheres, "cuda", 6, 2, optimizer=grown, capacity=capacity)
        theirs = optimise(spheres, "cuda", 6, 2, capacity=capacity)
        assert torch.equal(ours[0].live, theirs[0].live), count
        assert torch.equal(ours[0].observations.statistics, theirs[0].observations.statistics)
        assert np.array_equal(ours[2], theirs[2])


def test_a_map_that_grew_gives_the_bytes_of_one_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = optimise(scene(3000, 1), "cuda", 6, 2)
    monkeypatch.setattr(gaussian_map, "first_room", lambda capacity, device: 40)
    grown = optimise(scene(3000, 1), "cuda", 6, 2)
    assert torch.equal(ordinary[0].live, grown[0].live)
    assert np.array_equal(ordinary[2], grown[2])


@pytest.mark.parametrize("count", [0, 1, 600])
def test_sanitize_rendering_between_steps_is_that_of_a_plan_alone(count: int) -> None:
    optimizer = MapOptimizer(MappingConfig(), CAMERA, LOW_PASS, "cuda", 0.75)
    T = random_pose(np.random.default_rng(3)).numpy()
    plan = RasterPlan(device="cuda")
    for spheres in (scene(2), scene(400), scene(600)[:, :count]):
        room = GaussianMap(700, device="cuda")
        room.insert(spheres.cuda())
        planes = optimizer.render(room, T)
        expected = torch.empty_like(planes)
        plan.project(room.parameters, room.count, CAMERA, T, LOW_PASS)
        plan.forward(expected)
        assert torch.equal(planes, expected)
        optimise(spheres, "cuda", 1, optimizer=optimizer)


def test_lists_take_what_the_spheres_need_and_not_the_capacity() -> None:
    optimizer = MapOptimizer(MappingConfig(), CAMERA, LOW_PASS, "cuda", 0.75)
    optimise(scene(3000), "cuda", 3, 1, optimizer=optimizer, capacity=500_000)
    # Five million cells of 60 bytes were there once.
    assert optimizer.memory().lists < 30e6


def test_sanitize_mapping() -> None:
    _, _, losses = optimise(scene(600, 4), "cuda", 2)
    assert (losses > 0).all()


def track(
    device: str,
    seed: int,
    guesses: int,
    list_margin: float = LIST_MARGIN,
    config: TrackingConfig = TRACKING,
    times: int = 1,
):
    """Return what a tracker finds, so many times, and the true pose."""
    spheres = scene(2000, 5)
    rng = np.random.default_rng(seed)
    T = random_pose(rng).numpy()
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=1)
    frame = dataset[0]
    camera = frame.camera
    planes = rasterize_reference(spheres, torch.from_numpy(T), camera, LOW_PASS)
    rgb = (255 * planes[:3].clamp(0, 1)).byte().permute(1, 2, 0).contiguous().numpy()
    depth = (planes[3] / planes[4].clamp(min=0.1)).float().numpy()
    frame = replace(frame, rgb=rgb, depth=depth)
    starts = [geometry.exp_se3(0.02 * rng.normal(size=6)) @ T for _ in range(guesses)]
    tracker = Tracker(config, LOW_PASS, device, list_margin)
    pyramid = build_pyramid(frame, 3, device)
    found = [
        tracker.estimate(spheres.to(device), 2000, pyramid, starts, 1.02, 0.01)
        for _ in range(times)
    ]
    return *found, T


@pytest.mark.parametrize("guesses", [1, 3])
def test_tracking_finds_the_pose_that_the_cpu_finds(guesses: int) -> None:
    ours, _ = track("cuda", 11, guesses, 0.0)
    theirs, _ = track("cpu", 11, guesses, 0.0)
    np.testing.assert_allclose(ours.T_camera_world, theirs.T_camera_world, atol=1e-5)
    assert ours.iterations == theirs.iterations
    assert (ours.gain, ours.bias) == pytest.approx((theirs.gain, theirs.bias), abs=1e-5)
    assert ours.equations.cost == pytest.approx(theirs.equations.cost, rel=1e-4)
    assert ours.valid_share == pytest.approx(theirs.valid_share, abs=1e-4)


def test_tracking_with_lists_used_again_is_as_good_and_repeats_itself() -> None:
    ours, truth = track("cuda", 11, 3)
    assert np.abs(ours.T_camera_world - truth).max() < 2e-3
    # The order of the spheres is that of a pose up to two pixels away, so that colours differ.
    assert ours.equations.colour_rms < 0.01
    again, _ = track("cuda", 11, 3)
    assert np.array_equal(ours.T_camera_world, again.T_camera_world)


@pytest.mark.parametrize("list_margin", [0.0, 0.2, LIST_MARGIN])
@pytest.mark.parametrize("iterations", [1, 6, 15])
def test_rounds_of_the_graph_are_the_iterations_one_by_one(
    list_margin: float, iterations: int
) -> None:
    """The first frame's kernels are launched one by one, the second's are a graph."""
    config = replace(TRACKING, iterations=iterations, convergence_step=1e-12)
    plain, graph, _ = track("cuda", 11, 1, list_margin, config, times=2)
    assert np.array_equal(plain.T_camera_world, graph.T_camera_world)
    assert (plain.gain, plain.bias) == (graph.gain, graph.bias)
    assert plain.iterations == graph.iterations
    assert plain.equations.cost == graph.equations.cost


def test_a_tracker_that_lacked_room_finds_what_one_with_room_finds() -> None:
    spheres = scene(40_000, 2)
    spheres[3] += 1.5  # more cells than the first size of the lists holds
    rng = np.random.default_rng(11)
    T = random_pose(rng).numpy()
    planes = rasterize_reference(spheres[:, :400], torch.from_numpy(T), CAMERA, LOW_PASS)
    rgb = planes[:3].float().contiguous().cuda()
    depth = (planes[3] / planes[4].clamp(min=0.1)).float().cuda()
    levels = [ImageLevel(CAMERA, rgb, depth)]
    tracker = Tracker(TrackingConfig(silhouette_threshold=0.5), LOW_PASS, "cuda")
    start = geometry.exp_se3(0.01 * rng.normal(size=6)) @ T
    found = [tracker.estimate(spheres.cuda(), 40_000, levels, [start], 1.0, 0.0) for _ in range(3)]
    for again in found[1:]:
        assert np.array_equal(again.T_camera_world, found[0].T_camera_world)
        assert again.iterations == found[0].iterations


def test_sanitize_tracking() -> None:
    found, _ = track("cuda", 12, 2)
    assert np.isfinite(found.T_camera_world).all()


def run_slam(device: str) -> np.ndarray:
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=14)
    slam = Slam(SlamConfig(), dataset.camera, device)
    for index in range(len(dataset)):
        slam.track(dataset[index])
    return slam.finish().T_world_camera


def test_slam_on_the_gpu_follows_the_cpu_and_repeats_itself() -> None:
    ours, theirs = run_slam("cuda"), run_slam("cpu")
    assert np.abs(ours - theirs)[:, :3, 3].max() < 0.01
    assert np.array_equal(ours, run_slam("cuda"))
