"""Points and triangles with colours as a PLY file, as MeshLab, Blender and Open3D read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from plyfile import PlyData, PlyElement

from gsslam.files import atomic_path


def write_coloured_ply(
    path: Path,
    xyz: NDArray[np.float32],
    rgb: NDArray[np.float32],
    *,
    normals: NDArray[np.float32] | None = None,
    triangles: NDArray[np.int32] | None = None,
) -> None:
    """Write points (N, 3) with colours (N, 3), 0 to 1, to ``path``; raises OutputError.

    ``normals`` (N, 3) and ``triangles`` (M, 3), indices of points, go along if given.
    """
    columns: list[tuple[str, str, NDArray[Any]]] = [
        (axis, "<f4", xyz[:, i]) for i, axis in enumerate("xyz")
    ]
    if normals is not None:
        columns += [(f"n{axis}", "<f4", normals[:, i]) for i, axis in enumerate("xyz")]
    pixels = np.rint(255 * np.clip(rgb, 0, 1)).astype(np.uint8)
    columns += [(name, "u1", pixels[:, i]) for i, name in enumerate(("red", "green", "blue"))]
    vertex = np.zeros(len(xyz), dtype=[(name, kind) for name, kind, _ in columns])
    for name, _, values in columns:
        vertex[name] = values
    elements = [PlyElement.describe(vertex, "vertex")]
    if triangles is not None:
        face = np.zeros(len(triangles), dtype=[("vertex_indices", "<i4", (3,))])
        face["vertex_indices"] = triangles
        elements.append(PlyElement.describe(face, "face"))
    with atomic_path(path) as temporary:
        PlyData(elements, byte_order="<").write(str(temporary))
