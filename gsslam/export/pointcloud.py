"""The map as coloured points with normals: those spheres that are on a surface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
# Metres; what is nearer is not drawn either.
_LEAST_DEPTH = 0.01

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SurfacePoints:
    """Spheres as points on the surface that the map shows."""

    # (N, 3) metres, moved onto the surface.
    xyz: NDArray[np.float32]
    # (N, 3) unit vectors towards the cameras; zero where ``seen`` is false.
    normals: NDArray[np.float32]
    # (N,) whether the sphere lies on a surface in any view.
    seen: NDArray[np.bool_]


def write_point_cloud(
    path: Path, state: SphereState, views: Iterable[SurfaceView], camera: Camera
) -> int:
    """Write the spheres that ``views`` of ``camera`` show, as points; return how many there are.

    Raises DatasetError where no sphere is seen, OutputError.
    """
    points = surface_points(state, views, camera)
    seen = points.seen
    if not seen.any():
        raise DatasetError("the map shows no surface to take points from")
    write_coloured_ply(path, points.xyz[seen], state.rgb[seen], normals=points.normals[seen])
    return int(seen.sum())


def surface_points(
    state: SphereState, views: Iterable[SurfaceView], camera: Camera
) -> SurfacePoints:
    """Return the spheres moved onto the surface of rendered depth, with its normals.

    Centres lie behind it, since of overlapping spheres the nearer have more weight. Each view that
    shows a sphere gives it a tangent plane; normals and distances are means over the views.
    """
    xyz, radii = state.xyz.astype(np.float64), np.exp(state.log_radius.astype(np.float64))
    normals, shifts, counts = np.zeros_like(xyz), np.zeros_like(xyz), np.zeros(len(xyz))
    for view in views:
        T = inverse(view.T_world_camera)
        centres = xyz @ T[:3, :3].T + T[:3, 3]
        inside, at = _pixels(centres, camera)
        surface, normal = (image[at] for image in _tangent_planes(view.depth, camera))
        behind = np.abs(centres[inside, 2] - surface[:, 2])
        near = behind < np.maximum(_TOLERANCE * surface[:, 2], radii[inside])
        chosen = near & np.isfinite(normal).all(axis=1)
        hit, normal = inside[chosen], normal[chosen]
        distance = np.sum(normal * (surface[chosen] - centres[hit]), axis=1, keepdims=True)
        normals[hit] += normal @ view.T_world_camera[:3, :3].T
        shifts[hit] += (distance * normal) @ view.T_world_camera[:3, :3].T
        counts[hit] += 1
    lengths = np.linalg.norm(normals, axis=1)
    seen = lengths > 1e-6
    normals[seen] /= lengths[seen, None]
    xyz[seen] += shifts[seen] / counts[seen, None]
    return SurfacePoints(xyz.astype(np.float32), normals.astype(np.float32), seen)


def _pixels(
    points: Floats, camera: Camera
) -> tuple[NDArray[np.intp], tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return which camera ``points`` (N, 3) lie in the image, and their rows and columns."""
    ahead = np.flatnonzero(points[:, 2] > _LEAST_DEPTH)
    x, y, z = points[ahead].T
    u, v = np.floor(camera.fx * x / z + camera.cx), np.floor(camera.fy * y / z + camera.cy)
    inside = (u >= 0) & (u < camera.width) & (v >= 0) & (v < camera.height)
    return ahead[inside], (v[inside].astype(np.intp), u[inside].astype(np.intp))


def _tangent_planes(depth: NDArray[np.float32], camera: Camera) -> tuple[Floats, Floats]:
    """Return points (H, W, 3) of a depth image and its unit normals there, towards the camera.

    Camera coordinates. Normals are NaN where a neighbour has no depth.
    """
    z = np.where(depth > 0, depth.astype(np.float64), np.nan)
    u = (np.arange(camera.width) + 0.5 - camera.cx) / camera.fx
    v = (np.arange(camera.height) + 0.5 - camera.cy) / camera.fy
    points = np.stack([u[None, :] * z, v[:, None] * z, z], axis=2)
    normals = np.full_like(points, np.nan)
    right = points[1:-1, 2:] - points[1:-1, :-2]
    down = points[2:, 1:-1] - points[:-2, 1:-1]
    inner = np.cross(down, right)
    normals[1:-1, 1:-1] = inner / np.linalg.norm(inner, axis=2, keepdims=True)
    return points, normals
