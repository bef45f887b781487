"""The exported map: read back by us, and by an independent reader."""

from pathlib import Path

import gsply
import numpy as np
import pytest
from plyfile import PlyData

from gsslam.errors import DatasetError, OutputError
from gsslam.export import read_ply, write_ply
from gsslam.results import SphereState


@pytest.fixture
def state() -> SphereState:
    rng = np.random.default_rng(0)
    return SphereState(
        xyz=rng.normal(size=(50, 3)).astype(np.float32),
        log_radius=rng.normal(-4, 1, 50).astype(np.float32),
        opacity_logit=rng.normal(0, 3, 50).astype(np.float32),
        rgb=rng.random((50, 3), dtype=np.float32),
    )


def test_spheres_come_back(state: SphereState, tmp_path: Path) -> None:
    write_ply(state, tmp_path / "map.ply")
    back = read_ply(tmp_path / "map.ply")
    np.testing.assert_array_equal(back.xyz, state.xyz)
    np.testing.assert_array_equal(back.log_radius, state.log_radius)
    np.testing.assert_array_equal(back.opacity_logit, state.opacity_logit)
    np.testing.assert_allclose(back.rgb, state.rgb, atol=1e-6)
    assert all(a.dtype == np.float32 for a in (back.xyz, back.log_radius, back.rgb))
    assert [path.name for path in tmp_path.iterdir()] == ["map.ply"]


def test_an_independent_reader_sees_the_same_gaussians(state: SphereState, tmp_path: Path) -> None:
    write_ply(state, tmp_path / "map.ply")
    read = gsply.plyread(str(tmp_path / "map.ply"))
    np.testing.assert_array_equal(read.means, state.xyz)
    np.testing.assert_array_equal(read.scales, np.repeat(state.log_radius[:, None], 3, axis=1))
    np.testing.assert_array_equal(read.opacities.ravel(), state.opacity_logit)
    np.testing.assert_array_equal(read.quats, np.tile([1, 0, 0, 0], (50, 1)))
    np.testing.assert_allclose(0.5 + 0.28209479177387814 * read.sh0, state.rgb, atol=1e-6)


def test_header_has_the_order_that_viewers_expect(state: SphereState, tmp_path: Path) -> None:
    write_ply(state, tmp_path / "map.ply")
    header = (tmp_path / "map.ply").read_bytes().split(b"end_header\n")[0].decode().splitlines()
    assert header[:3] == ["ply", "format binary_little_endian 1.0", "element vertex 50"]
    names = "x y z nx ny nz f_dc_0 f_dc_1 f_dc_2 opacity"
    names += " scale_0 scale_1 scale_2 rot_0 rot_1 rot_2 rot_3"
    assert header[3:] == [f"property float {name}" for name in names.split()]


def test_ellipsoids_become_spheres_of_the_same_volume(state: SphereState, tmp_path: Path) -> None:
    write_ply(state, tmp_path / "map.ply")
    ply = PlyData.read(str(tmp_path / "map.ply"), mmap=False)
    ply["vertex"].data["scale_0"] += 1.5
    ply.write(str(tmp_path / "ellipsoids.ply"))
    back = read_ply(tmp_path / "ellipsoids.ply")
    np.testing.assert_allclose(back.log_radius, state.log_radius + 0.5, atol=1e-6)


def test_text_files_are_read_too(state: SphereState, tmp_path: Path) -> None:
    write_ply(state, tmp_path / "map.ply")
    ply = PlyData.read(str(tmp_path / "map.ply"), mmap=False)
    ply.text = True
    ply.write(str(tmp_path / "text.ply"))
    back = read_ply(tmp_path / "text.ply")
    np.testing.assert_allclose(back.xyz, state.xyz, rtol=1e-6)


def test_an_empty_map_is_a_valid_file(tmp_path: Path) -> None:
    empty = np.zeros((0, 3), np.float32)
    write_ply(SphereState(empty, empty[:, 0], empty[:, 0], empty), tmp_path / "map.ply")
    assert len(read_ply(tmp_path / "map.ply")) == 0


def test_unusable_files_are_named(state: SphereState, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read the map .*none\.ply: No such file"):
        read_ply(tmp_path / "none.ply")
    (tmp_path / "text.ply").write_text("hello\n")
    with pytest.raises(DatasetError, match="no Gaussian splat PLY"):
        read_ply(tmp_path / "text.ply")
    write_ply(state, tmp_path / "map.ply")
    whole = (tmp_path / "map.ply").read_bytes()
    (tmp_path / "cut.ply").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match=r"cut\.ply is no Gaussian splat PLY"):
        read_ply(tmp_path / "cut.ply")
    (tmp_path / "points.ply").write_bytes(
        b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n1\n"
    )
    with pytest.raises(DatasetError, match=r"points\.ply is no Gaussian splat PLY"):
        read_ply(tmp_path / "points.ply")
    with pytest.raises(OutputError, match="cannot write"):
        write_ply(state, tmp_path / "map.ply" / "below_a_file.ply")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (b"49", "declares another size"),
        (b"51", "early end-of-file"),
        (b"999999999999", "is no Gaussian splat PLY"),
        (b"99999999999999999999999", "is no Gaussian splat PLY"),
        (b"-1", "negative"),
    ],
)
def test_headers_that_lie_are_refused(
    declared: bytes, message: str, state: SphereState, tmp_path: Path
) -> None:
    path = tmp_path / "map.ply"
    write_ply(state, path)
    path.write_bytes(path.read_bytes().replace(b"vertex 50", b"vertex " + declared))
    with pytest.raises(DatasetError, match=message):
        read_ply(path)


def test_values_that_are_no_numbers_are_refused(state: SphereState, tmp_path: Path) -> None:
    state.log_radius[7] = np.nan
    write_ply(state, tmp_path / "map.ply")
    with pytest.raises(DatasetError, match="NaN or infinite"):
        read_ply(tmp_path / "map.ply")
