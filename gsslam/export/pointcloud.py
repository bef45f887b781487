"""The map as coloured points with normals: the centres of those spheres that are on a surface."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.errors import DatasetError
from gsslam.export.coloured_ply import write_coloured_ply
from gsslam.export.surfaces import SurfaceView
from gsslam.geometry import inverse
from gsslam.results import SphereState

# A sphere is on the surface if its centre is this near to it, relative to the depth, or nearer than
# its own radius.
_TOLERANCE = 0.02

Floats = NDArray[np.float64]


def write_point_cloud(
    path: Path, state: SphereState, views: Iterable[SurfaceView], camera: Camera
) -> int:
    """Write the spheres that ``views`` of ``camera`` show, as points; return how many there are.

    Normals are those of the rendered depth, towards the cameras. Raises DatasetError where no
    sphere is seen, OutputError.
    """
    normals, seen = surface_normals(state, views, camera)
    if not seen.any():
        raise DatasetError("the map shows no surface to take points from")
    write_coloured_ply(path, state.xyz[seen], state.rgb[seen], normals=normals[seen])
    return int(seen.sum())


def surface_normals(
    state: SphereState, views: Iterable[SurfaceView], camera: Camera
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the unit normals (N, 3) of the spheres, and which (N,) lie on a surface in a view."""
    sums = np.zeros((len(state), 3))
    xyz = state.xyz.astype(np.float64)
    radii = np.exp(state.log_radius.astype(np.float64))
    for view in views:
        T = inverse(view.T_world_camera)
        points = xyz @ T[:3, :3].T + T[:3, 3]
        z = points[:, 2]
        ahead = np.flatnonzero(z > 1e-3)
        u = np.floor(camera.fx * points[ahead, 0] / z[ahead] + camera.cx)
        v = np.floor(camera.fy * points[ahead, 1] / z[ahead] + camera.cy)
        inside = (u >= 0) & (u < camera.width) & (v >= 0) & (v < camera.height)
        ahead, at = ahead[inside], (v[inside].astype(np.intp), u[inside].astype(np.intp))
        depth, normal = view.depth[at].astype(np.float64), _normals(view.depth, camera)[at]
        near = np.abs(z[ahead] - depth) < np.maximum(_TOLERANCE * depth, radii[ahead])
        chosen = near & (depth > 0) & np.isfinite(normal).all(axis=1)
        sums[ahead[chosen]] += normal[chosen] @ view.T_world_camera[:3, :3].T
    lengths = np.linalg.norm(sums, axis=1)
    seen = lengths > 1e-6
    sums[seen] /= lengths[seen, None]
    return sums.astype(np.float32), seen


def _normals(depth: NDArray[np.float32], camera: Camera) -> Floats:
    """Return the unit normals (H, W, 3) of a depth image towards the camera, NaN where unknown."""
    z = np.where(depth > 0, depth.astype(np.float64), np.nan)
    u = (np.arange(camera.width) + 0.5 - camera.cx) / camera.fx
    v = (np.arange(camera.height) + 0.5 - camera.cy) / camera.fy
    points = np.stack([u[None, :] * z, v[:, None] * z, z], axis=2)
    normals = np.full_like(points, np.nan)
    right = points[1:-1, 2:] - points[1:-1, :-2]
    down = points[2:, 1:-1] - points[:-2, 1:-1]
    inner = np.cross(down, right)
    normals[1:-1, 1:-1] = inner / np.linalg.norm(inner, axis=2, keepdims=True)
    return normals
