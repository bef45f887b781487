"""The rasteriser's bench on a tiny scene: every operation is timed and every kernel has a floor."""

from __future__ import annotations

import pytest

from gsslam import open_dataset
from scripts.bench_rasterizer import Options, compare
from scripts.bench_scenes import Scene, back_projected_scene, crowded_scene
from scripts.kernel_floors import count, floors


@pytest.fixture(scope="module")
def scene() -> Scene:
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=7)
    return back_projected_scene(dataset, (0, 2, 4, 6), 2000, (64, 48))


def test_times_every_operation(scene: Scene) -> None:
    rows = compare(scene, Options(rounds=2))
    names = ["forward", "forward+backward", "mapping step", "tracking step"]
    assert [row["operation"] for row in rows] == names
    for row in rows:
        assert (row["spheres"], row["size"]) == (2000, "64x48")
        assert 0 < row["cpu"]["low"] <= row["cpu"]["median"] <= row["cpu"]["high"]


def test_floors_follow_what_is_in_view(scene: Scene) -> None:
    found = count(scene)
    assert 0 < found.visible <= found.spheres == 2000
    assert found.visible < found.entries < found.items
    # Every pixel of a furnished room blends some spheres, and no more than all.
    assert found.pixels < found.pairs < found.pixels * found.visible
    for floor in floors(found).values():
        assert floor.bytes > 0
        assert floor.microseconds() > 0


def test_crowded_spheres_lie_where_they_are_asked() -> None:
    scene = crowded_scene("tile", 500, (14, 14), 1.0)
    u = scene.camera.fx * scene.spheres[0] / scene.spheres[2]
    v = scene.camera.fy * scene.spheres[1] / scene.spheres[2]
    assert float(u.abs().max()) <= 7.001
    assert float(v.abs().max()) <= 7.001
