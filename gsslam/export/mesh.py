"""The map as a triangle mesh: rendered depth, fused into a truncated signed distance field.

Curless and Levoy, A Volumetric Method for Building Complex Models from Range Images (SIGGRAPH
1996); voxel blocks of Open3D.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.errors import ConfigError, DatasetError
from gsslam.export.coloured_ply import write_coloured_ply
from gsslam.export.surfaces import SurfaceView
from gsslam.extras import require
from gsslam.geometry import inverse

# Distances are kept up to this many voxels from a surface.
_TRUNCATION_VOXELS = 8.0
# Views that must have seen a surface, where there are as many.
_LEAST_VIEWS = 3
_BLOCK_VOXELS = 16
_FIRST_BLOCKS = 4096


def require_open3d() -> Any:
    """Import Open3D; raises ConfigError saying what to install."""
    return require("open3d", "mesh", "making a mesh")


def write_mesh(
    path: Path, views: Iterable[SurfaceView], camera: Camera, voxel_m: float, max_depth_m: float
) -> int:
    """Fuse ``views`` of ``camera`` and write the surface to ``path`` (PLY); return its triangles.

    The order of vertices and triangles is sorted, since Open3D's varies from run to run. Raises
    ConfigError without Open3D, DatasetError where the views show no surface, OutputError.
    """
    if not 0 < voxel_m < np.inf:
        raise ConfigError(f"--voxel {voxel_m} must be a positive number of metres")
    if not 0 < max_depth_m < np.inf:
        raise ConfigError(f"--max-depth {max_depth_m} must be a positive number of metres")
    fusion = _Fusion(camera, voxel_m, max_depth_m)
    for view in views:
        fusion.add(view)
    xyz, rgb, triangles = fusion.mesh()
    if len(triangles) == 0:
        raise DatasetError("the map shows no surface to make a mesh of")
    write_coloured_ply(path, xyz, rgb, triangles=triangles)
    return len(triangles)


# Vertices (N, 3), their colours (N, 3), 0 to 1, and triangles (M, 3).
_Mesh = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]


class _Fusion:
    """A signed distance field that grows with every view."""

    def __init__(self, camera: Camera, voxel_m: float, max_depth_m: float) -> None:
        self._o3d = require_open3d()
        core = self._o3d.core
        self._max_depth_m = max_depth_m
        # Open3D's fusion takes the pixel that a point falls into, so that centres lie at halves,
        # as here: with 0.5 less, the mesh of the synthetic room was off by 12 mm instead of 1.5.
        self._intrinsics = core.Tensor(camera.matrix())
        self._views = 0
        self._grid = self._o3d.t.geometry.VoxelBlockGrid(
            attr_names=("tsdf", "weight", "color"),
            attr_dtypes=(core.float32, core.float32, core.float32),
            attr_channels=((1), (1), (3)),
            voxel_size=voxel_m,
            block_resolution=_BLOCK_VOXELS,
            block_count=_FIRST_BLOCKS,
        )

    def add(self, view: SurfaceView) -> None:
        """Fuse one view."""
        if not ((view.depth > 0) & (view.depth < self._max_depth_m)).any():
            return
        image = self._o3d.t.geometry.Image
        depth = image(self._o3d.core.Tensor(np.ascontiguousarray(view.depth)))
        colour = image(self._o3d.core.Tensor(np.ascontiguousarray(view.colour)))
        pose = self._o3d.core.Tensor(np.ascontiguousarray(inverse(view.T_world_camera)))
        scale = {"depth_scale": 1.0, "depth_max": self._max_depth_m}
        scale["trunc_voxel_multiplier"] = _TRUNCATION_VOXELS
        blocks = self._grid.compute_unique_block_coordinates(
            *(depth, self._intrinsics, pose), **scale
        )
        self._grid.integrate(
            *(blocks, depth, colour, self._intrinsics, self._intrinsics, pose), **scale
        )
        self._views += 1

    def mesh(self) -> _Mesh:
        """Return the surface, empty where there is none."""
        if self._views == 0:
            return _no_mesh()
        mesh = self._grid.extract_triangle_mesh(weight_threshold=min(_LEAST_VIEWS, self._views))
        if mesh.is_empty():
            return _no_mesh()
        return _sorted(
            mesh.vertex.positions.numpy(),
            mesh.vertex.colors.numpy(),
            mesh.triangle.indices.numpy().astype(np.int32),
        )


def _no_mesh() -> _Mesh:
    nothing = np.zeros((0, 3), np.float32)
    return nothing, nothing, nothing.astype(np.int32)


def _sorted(
    xyz: NDArray[np.float32], rgb: NDArray[np.float32], triangles: NDArray[np.int32]
) -> _Mesh:
    """Return the mesh with vertices in the order of their coordinates, triangles of vertices."""
    order = np.lexsort(xyz.T)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    moved = place[triangles]
    # Each begins with its least vertex; turning keeps which side is the front.
    first = moved.argmin(axis=1)[:, None]
    moved = np.take_along_axis(moved, (first + np.arange(3)) % 3, axis=1)
    return xyz[order], rgb[order], moved[np.lexsort(moved.T[::-1])]
