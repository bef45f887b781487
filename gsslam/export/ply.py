"""The map as a PLY file in the layout that Gaussian splat viewers read.

Layout of Kerbl et al., 3D Gaussian Splatting (SIGGRAPH 2023): one vertex a Gaussian, with the
logarithms of three scales, a quaternion (w, x, y, z), the logit of the opacity and spherical
harmonics of the colour. A sphere has three equal scales, no rotation, and degree 0 only.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from plyfile import PlyData, PlyElement, PlyListProperty, PlyParseError

from gsslam.errors import DatasetError
from gsslam.files import atomic_path
from gsslam.results import SphereState

# Value of the constant spherical harmonic, 1 / (2 sqrt(pi)): colour = 0.5 + this * f_dc.
HARMONIC_0 = 0.28209479177387814

_PROPERTIES = (
    *("x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", "opacity"),
    *("scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"),
)

_END = b"end_header\n"
# What plyfile raises for files of other kinds and for headers that lie.
_NOT_OURS = (PlyParseError, KeyError, ValueError, OverflowError, MemoryError)


def write_ply(state: SphereState, path: Path) -> None:
    """Write the spheres to ``path``, binary little-endian, 68 bytes each; raises OutputError."""
    vertex = np.zeros(len(state), dtype=[(name, "<f4") for name in _PROPERTIES])
    for axis, name in enumerate("xyz"):
        vertex[name] = state.xyz[:, axis]
        vertex[f"f_dc_{axis}"] = (state.rgb[:, axis] - 0.5) / HARMONIC_0
        vertex[f"scale_{axis}"] = state.log_radius
    vertex["opacity"] = state.opacity_logit
    vertex["rot_0"] = 1
    with atomic_path(path) as temporary:
        PlyData([PlyElement.describe(vertex, "vertex")], byte_order="<").write(str(temporary))


def read_ply(path: Path) -> SphereState:
    """Return the spheres in ``path``.

    An ellipsoid becomes the sphere of equal volume; harmonics over degree 0 are left out. Raises
    DatasetError where the file is missing, is no Gaussian splat PLY or is not what its header says.
    """
    try:
        ply = PlyData.read(str(path))
        vertex = ply["vertex"].data
        _check_size(path, ply)
        columns = {name: np.array(vertex[name], dtype=np.float32) for name in _PROPERTIES[:3]}
        columns |= {name: np.array(vertex[name], dtype=np.float32) for name in _PROPERTIES[6:13]}
        if not all(np.isfinite(column).all() for column in columns.values()):
            raise ValueError("it has values that are NaN or infinite")
    except OSError as error:
        raise DatasetError(f"cannot read the map {path}: {error.strerror or error}") from error
    except _NOT_OURS as error:
        raise DatasetError(f"{path} is no Gaussian splat PLY file: {error}") from error
    dc = np.stack([columns[f"f_dc_{axis}"] for axis in range(3)], axis=1)
    scales = np.stack([columns[f"scale_{axis}"] for axis in range(3)], axis=1)
    return SphereState(
        xyz=np.stack([columns[axis] for axis in "xyz"], axis=1),
        log_radius=scales.mean(axis=1, dtype=np.float64).astype(np.float32),
        opacity_logit=columns["opacity"],
        rgb=(np.float32(0.5) + np.float32(HARMONIC_0) * dc).astype(np.float32),
    )


def _check_size(path: Path, ply: PlyData) -> None:
    """Raise ValueError where a binary file holds more than its header declares."""
    has_lists = any(isinstance(p, PlyListProperty) for e in ply.elements for p in e.properties)
    if ply.text or has_lists:
        return
    declared = sum(element.data.nbytes for element in ply.elements)
    with path.open("rb") as file:
        file.seek(-declared - len(_END), os.SEEK_END)
        if file.read(len(_END)) != _END:
            raise ValueError("its header declares another size than it has")
