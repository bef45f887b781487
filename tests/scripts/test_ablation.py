"""The ablation's other side: the pipeline on a differentiable rasteriser that is not ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gsslam.config import SlamConfig
from gsslam.datasets import open_dataset
from gsslam.raster import constants as c
from gsslam.raster.gsplat import ELLIPSOID_ROWS, ROW_OTHER_AXES, ROW_QUATERNION, rasterize_gsplat
from gsslam.raster.native import rasterize_native
from gsslam.slam import Slam
from scripts import ablation, ellipsoids
from tests.conftest import usable_device


def by_our_kernels(parameters, views, camera, low_pass):
    """What gsplat is asked for, by our kernels: its package needs a GPU."""
    spheres = parameters[: c.ROW_FEATURE]
    return torch.stack([rasterize_native(spheres, T.double(), camera, low_pass) for T in views])


@pytest.mark.parametrize("rows", [8, ELLIPSOID_ROWS])
def test_the_pipeline_tracks_and_maps(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ellipsoids, "rasterize_gsplat", by_our_kernels)
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=6)
    config = SlamConfig()
    config = replace(
        config,
        mapping=replace(config.mapping, iterations=10, first_iterations=30),
        pruning=replace(config.pruning, judgements=0),
    )
    ours = Slam(config, dataset.camera)
    theirs = ellipsoids.GsplatSlam(config, dataset.camera, "cpu", rows=rows)
    for i in range(len(dataset)):
        results = [slam.track(dataset[i]) for slam in (ours, theirs)]
        assert results[1].tracked
    poses = [slam.finish().T_world_camera for slam in (ours, theirs)]
    # The same algorithm but for the way to its Jacobians.
    assert np.abs(poses[0] - poses[1])[:, :3, 3].max() < 4e-3
    assert theirs.map.count == pytest.approx(ours.map.count, rel=0.05)
    view = theirs.render(poses[1][-1])
    assert np.abs(view.colour - dataset[5].rgb / 255).mean() < 0.05


def test_ellipsoids_start_as_spheres() -> None:
    gaussian_map = ellipsoids.EllipsoidMap(5, "cpu")
    spheres = torch.randn(8, 3)
    gaussian_map.insert(spheres)
    assert torch.equal(gaussian_map.live[:8], spheres)
    assert torch.equal(gaussian_map.live[ROW_OTHER_AXES], spheres[[3, 3]])
    assert gaussian_map.live[ROW_QUATERNION].T.tolist() == [[1, 0, 0, 0]] * 3


@pytest.mark.gpu
def test_gsplat_agrees_with_our_kernels() -> None:
    usable_device("cuda")
    pytest.importorskip("gsplat")
    dataset = open_dataset("synthetic/room", None, resolution=(160, 120), max_frames=1)
    slam = Slam(SlamConfig(), dataset.camera, "cuda")
    slam.track(dataset[0])
    view = torch.eye(4, device="cuda")[None]
    spheres = slam.map.live.contiguous()
    theirs = rasterize_gsplat(spheres, view, dataset.camera, 0.3)[0]
    ours = rasterize_native(spheres, view[0], dataset.camera, 0.3)
    error = (theirs - ours)[:3].square().mean()
    assert -10 * float(torch.log10(error)) > 35
    depth = (theirs[c.PLANE_DEPTH] / theirs[c.PLANE_SILHOUETTE]) / (
        ours[c.PLANE_DEPTH] / ours[c.PLANE_SILHOUETTE]
    )
    assert (depth.median() - 1).abs() < 1e-3


def test_one_command_makes_runs_that_are_not_repeated(tmp_path: Path) -> None:
    options = ablation.Options(
        sequence=tmp_path,
        out=tmp_path / "out",
        dataset="synthetic/room",
        preset="synthetic",
        resolution="48x36",
        max_frames=10,
        variants=("pruning off", "equal: high error goes"),
        equal_spheres=300,
    )
    assert list(ablation.variants(options)) == ["pruning off", "equal: high error goes"]
    for name in options.variants:
        ablation.run_single(replace(options, single=name))
    found = ablation.results(options)
    assert [len(runs) for runs in found.values()] == [1, 1]
    assert found["equal: high error goes"][0]["spheres"] <= 300 < found["pruning off"][0]["spheres"]
    text = ablation.table(found)
    assert len(text.splitlines()) == 4
    assert "| equal: high error goes | " in text
    ablation.plot(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_everything_but_gsplat_runs_without_a_gpu() -> None:
    options = ablation.Options(sequence=Path())
    names = set(ablation.variants(options))
    assert "pruning (full score)" in names
    assert not any("gsplat" in name for name in names)
    with_gpu = set(ablation.variants(replace(options, device="cuda")))
    assert with_gpu - names == {"spheres, gsplat", "ellipsoids, gsplat"}
    for variant in ablation.variants(replace(options, device="cuda")).values():
        ablation.configuration(options, variant)
