"""The compact map and SPZ: small, read back, and close to what was written."""

from __future__ import annotations

from pathlib import Path

import gsply
import numpy as np
import pytest

from gsslam.errors import DatasetError, OutputError
from gsslam.export import read_compact, write_compact, write_ply, write_spz
from gsslam.results import SphereState


def spheres(n: int) -> SphereState:
    """A wavy surface of 4 x 4 m, as back-projected depth makes it."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-2, 2, size=(2, n))
    z = 2 + 0.3 * np.sin(3 * x) * np.cos(2 * y)
    return SphereState(
        xyz=np.stack([x, y, z], axis=1).astype(np.float32),
        log_radius=rng.normal(-5, 0.5, n).astype(np.float32),
        opacity_logit=rng.normal(1, 2, n).astype(np.float32),
        rgb=rng.uniform(-0.05, 1.05, size=(n, 3)).astype(np.float32),
    )


def matched(state: SphereState, back: SphereState) -> np.ndarray:
    """Return which sphere of ``back`` is which of ``state``."""
    distances = np.linalg.norm(back.xyz[None] - state.xyz[:, None], axis=2)
    nearest = distances.argmin(axis=1)
    assert len(set(nearest.tolist())) == len(state)
    return nearest


def opacity(state: SphereState) -> np.ndarray:
    return 1 / (1 + np.exp(-state.opacity_logit.astype(np.float64)))


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 1500])
def test_spheres_come_back_nearly(n: int, tmp_path: Path) -> None:
    state, path = spheres(n), tmp_path / "map.npz"
    write_compact(state, path)
    back = read_compact(path)
    order = matched(state, back)
    assert np.abs(back.xyz[order] - state.xyz).max() < 5e-5
    assert np.abs(back.log_radius[order] - state.log_radius).max() < 0.01
    assert np.abs(opacity(back)[order] - opacity(state)).max() < 0.003
    assert np.abs(back.rgb[order] - state.rgb).max() < 0.003
    assert all(a.dtype == np.float32 for a in (back.xyz, back.opacity_logit, back.rgb))
    assert [p.name for p in tmp_path.iterdir()] == ["map.npz"]


def test_it_is_a_sixth_of_the_ply_and_the_same_every_time(tmp_path: Path) -> None:
    state = spheres(20_000)
    paths = [tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "map.ply"]
    write_compact(state, paths[0])
    write_compact(state, paths[1])
    write_ply(state, paths[2])
    assert paths[0].read_bytes() == paths[1].read_bytes()
    size = paths[0].stat().st_size
    assert size < 11.5 * len(state)
    assert 5.9 * size < paths[2].stat().st_size


def test_extremes_and_an_empty_map(tmp_path: Path) -> None:
    path = tmp_path / "map.npz"
    state = spheres(4)
    state.opacity_logit[:] = [-40, 40, 0, 0]
    state.xyz[1] = [1e4, -1e4, 1e4]
    write_compact(state, path)
    back = read_compact(path)
    assert np.isfinite(back.opacity_logit).all()
    assert sorted(opacity(back).round(2).tolist()) == [0, 0.5, 0.5, 1]
    none = SphereState(
        *(a[:0] for a in (state.xyz, state.log_radius, state.opacity_logit)), state.rgb[:0]
    )
    write_compact(none, path)
    assert len(read_compact(path)) == 0


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 torn"])
def test_what_is_no_compact_map_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "map.npz"
    with pytest.raises(DatasetError, match="cannot read the map"):
        read_compact(path)
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="is no compact map"):
        read_compact(path)
    np.savez(path, something=np.zeros(3))
    with pytest.raises(DatasetError, match="is no compact map"):
        read_compact(path)
    with pytest.raises(OutputError):
        write_compact(spheres(2), path / "below")


def test_spz_is_read_by_its_library(tmp_path: Path) -> None:
    state, path = spheres(300), tmp_path / "map.spz"
    write_spz(state, path)
    back = gsply.read_spz(path)
    order = matched(state, SphereState(back.means, *[back.means[:, 0]] * 2, back.means))
    assert np.abs(back.means[order] - state.xyz).max() < 2.5e-4
    assert np.abs(back.scales[order] - state.log_radius[:, None]).max() < 0.04
    assert path.stat().st_size < 20 * len(state)
