"""A map that stays as it is, rendered: the same as SLAM renders it, on every device."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gsslam import Slam
from gsslam.finished_run import FinishedRun
from gsslam.rendering import MapRenderer
from gsslam.results import SphereState


def test_it_shows_what_slam_shows(small_run: Path, device: str) -> None:
    run = FinishedRun.read(small_run)
    state, camera, pose = run.spheres(), run.camera(), run.trajectory.T_world_camera[5]
    view = MapRenderer(state, run.config.map.low_pass, device).render(pose, camera)
    with Slam(run.config, camera, device) as slam:
        slam.map.load(state)
        expected = slam.render(pose)
    for name in ("colour", "depth", "silhouette"):
        np.testing.assert_array_equal(getattr(view, name), getattr(expected, name))
    assert view.silhouette.mean() > 0.9


def test_an_empty_map_shows_nothing(small_run: Path, device: str) -> None:
    run = FinishedRun.read(small_run)
    nothing = np.zeros((0, 3), np.float32)
    empty = SphereState(nothing, nothing[:, 0], nothing[:, 0], nothing)
    view = MapRenderer(empty, 0.3, device).render(np.eye(4), run.camera())
    assert view.colour.shape == (72, 96, 3)
    assert not view.silhouette.any()
