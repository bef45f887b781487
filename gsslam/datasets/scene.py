"""A textured room of rectangles and spheres, rendered by casting a ray through every pixel.

Colours use only +, -, *, /, square root and rounding, which every computer does alike, so that the
same frame has the same bytes everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera

Array = NDArray[np.float64]
Values = NDArray[np.floating]

_NEAR = 0.05
_AMBIENT = 0.5
_LIGHT = np.array([-0.4, 0.3, 2.3])
# Samples of colour along each side of a pixel.
_SUPERSAMPLING = 2


@dataclass(frozen=True)
class Layer:
    """A pattern of soft tiles: the product of two waves, cut off at +-1 after sharpening."""

    # (2, 3) cycles a metre.
    frequencies: Array
    # (2,) cycles.
    phases: Array
    # (3,) RGB, added where the pattern is +1, subtracted where it is -1.
    amplitude: Array
    sharpness: float


@dataclass(frozen=True)
class Material:
    """A solid texture: its colour (RGB, 0 to 1) is a function of the place in the world."""

    base: Array
    layers: tuple[Layer, ...]

    def albedo(self, points: Values) -> Values:
        """Return the colours (3, N) at ``points`` (3, N), metres."""
        colour = np.empty_like(points)
        colour[:] = self.base[:, None]
        for layer in self.layers:
            pattern = np.full_like(points[0], layer.sharpness)
            for frequency, phase in zip(layer.frequencies, layer.phases, strict=True):
                pattern *= _wave(_dot(frequency, points) + points.dtype.type(phase))
            np.clip(pattern, -1, 1, out=pattern)
            for channel, amplitude in enumerate(layer.amplitude):
                colour[channel] += pattern * points.dtype.type(amplitude)
        return colour


@dataclass(frozen=True)
class Rectangle:
    """An axis-aligned rectangle, seen from the side that its normal points to."""

    # The axis it is perpendicular to, and its position there (metres).
    axis: int
    position: float
    # (3,) opposite corners.
    low: Array
    high: Array
    # +1 or -1 along ``axis``.
    normal_sign: float
    material: Material

    def faces(self, origin: Array) -> bool:
        """Tell whether the rectangle can be seen from ``origin``."""
        return bool((origin[self.axis] - self.position) * self.normal_sign > 0)

    def hit(self, origin: Array, rays: Values) -> Values:
        """Return the distance along each of ``rays`` (3, ...), infinite where it is missed."""
        scalar = rays.dtype.type
        t: Values = scalar(self.position - origin[self.axis]) / rays[self.axis]
        missed = t <= 0
        for axis in {0, 1, 2} - {self.axis}:
            offset = t * rays[axis]
            missed |= offset < scalar(self.low[axis] - origin[axis])
            missed |= offset > scalar(self.high[axis] - origin[axis])
        t[missed] = np.inf
        return t

    def normals(self, points: Values) -> Values:
        """Return the unit normals (3, N) at ``points`` (3, N)."""
        normals = np.zeros_like(points)
        normals[self.axis] = self.normal_sign
        return normals


@dataclass(frozen=True)
class Sphere:
    """A sphere, seen from outside."""

    centre: Array
    radius: float
    material: Material

    @property
    def low(self) -> Array:
        """Corner of the bounding box (3,)."""
        return self.centre - self.radius

    @property
    def high(self) -> Array:
        """Opposite corner of the bounding box (3,)."""
        return self.centre + self.radius

    def faces(self, origin: Array) -> bool:
        """Tell whether the sphere can be seen from ``origin``."""
        return bool(np.linalg.norm(origin - self.centre) > self.radius)

    def hit(self, origin: Array, rays: Values) -> Values:
        """Return the distance along each of ``rays`` (3, ...), infinite where it is missed."""
        to_centre = self.centre - origin
        a, b = _dot(rays, rays), _dot(to_centre, rays)
        c = rays.dtype.type(to_centre @ to_centre - self.radius**2)
        discriminant = b * b - a * c
        t: Values = (b - np.sqrt(np.maximum(discriminant, 0))) / a
        t[(discriminant < 0) | (t <= 0)] = np.inf
        return t

    def normals(self, points: Values) -> Values:
        """Return the unit normals (3, N) at ``points`` (3, N)."""
        return ((points.T - self.centre) / self.radius).T.astype(points.dtype)


Surface = Rectangle | Sphere


@dataclass(frozen=True)
class Cast:
    """What the rays of one image met first."""

    # (3, H, W) directions in the world; camera z = 1, so that distance along them is depth.
    rays: Values
    # (H, W) metres along the optical axis; infinite where nothing was met.
    depth: Values
    # (H, W) index into the surfaces.
    surface: NDArray[np.uint8]


def cast_rays(
    surfaces: tuple[Surface, ...],
    camera: Camera,
    T_world_camera: Array,
    dtype: type[np.floating],
) -> Cast:
    """Cast a ray through each pixel centre of ``camera`` at ``T_world_camera`` (4, 4)."""
    x = (np.arange(camera.width) + 0.5 - camera.cx) / camera.fx
    y = (np.arange(camera.height) + 0.5 - camera.cy) / camera.fy
    R, origin = T_world_camera[:3, :3], T_world_camera[:3, 3]
    rays = (
        R[:, 0, None, None] * x + R[:, 1, None, None] * y[:, None] + R[:, 2, None, None]
    ).astype(dtype)
    depth = np.full(rays.shape[1:], np.inf, dtype=dtype)
    surface = np.zeros(rays.shape[1:], dtype=np.uint8)
    for index, (candidate, window) in enumerate(
        zip(surfaces, _windows(surfaces, camera, T_world_camera), strict=True)
    ):
        if not candidate.faces(origin):
            continue
        rows, columns = window
        with np.errstate(divide="ignore", invalid="ignore"):
            t = candidate.hit(origin, rays[:, rows, columns])
        closer = t < depth[window]
        np.copyto(depth[window], t, where=closer)
        np.copyto(surface[window], np.uint8(index), where=closer)
    return Cast(rays, depth, surface)


def render(
    surfaces: tuple[Surface, ...], camera: Camera, T_world_camera: Array
) -> tuple[NDArray[np.float32], Cast]:
    """Return the colour image (H, W, 3), 0 to 1, and the exact cast through the pixel centres."""
    n = _SUPERSAMPLING
    fine_camera = camera.resized(camera.width * n, camera.height * n)
    fine = cast_rays(surfaces, fine_camera, T_world_camera, np.float32)
    samples = _shade(surfaces, fine, T_world_camera[:3, 3])  # (3, n H, n W)
    colour = np.zeros((3, camera.height, camera.width), dtype=np.float32)
    for row, column in np.ndindex(n, n):
        colour += samples[:, row::n, column::n]
    colour = np.clip(colour / np.float32(n * n), 0, 1)
    exact = cast_rays(surfaces, camera, T_world_camera, np.float64)
    return np.ascontiguousarray(np.moveaxis(colour, 0, -1)), exact


def _shade(surfaces: tuple[Surface, ...], cast: Cast, origin: Array) -> NDArray[np.float32]:
    """Return the colours (3, H, W) of what was met: albedo under a lamp and ambient light."""
    points = cast.rays * cast.depth + origin.astype(np.float32)[:, None, None]
    # Sorted by surface, so that each works on one contiguous piece.
    order = np.argsort(cast.surface, axis=None, kind="stable")
    bounds = np.searchsorted(cast.surface.ravel()[order], np.arange(len(surfaces) + 1))
    points = points.reshape(3, -1)[:, order]
    for surface, start, end in zip(surfaces, bounds, bounds[1:], strict=False):
        if end > start:
            piece = points[:, start:end]
            piece[:] = surface.material.albedo(piece) * _brightness(surface, piece)
    colour = np.empty(points.shape, dtype=np.float32)
    colour[:, order] = points
    return colour.reshape(cast.rays.shape)


def _brightness(surface: Surface, points: Values) -> Values:
    """Return Lambert's cosine under the lamp, plus ambient light (N,)."""
    to_light = _LIGHT.astype(points.dtype)[:, None] - points
    cosine = _dot(surface.normals(points), to_light) / np.sqrt(_dot(to_light, to_light))
    scalar = points.dtype.type
    brightness: Values = scalar(_AMBIENT) + scalar(1 - _AMBIENT) * np.maximum(cosine, 0)
    return brightness


def _windows(
    surfaces: tuple[Surface, ...], camera: Camera, T_world_camera: Array
) -> list[tuple[slice, slice]]:
    """Return the rows and columns that can see each surface: all where it reaches behind."""
    boxes = np.stack([[surface.low, surface.high] for surface in surfaces])  # (S, 2, 3)
    picks = np.array(list(np.ndindex(2, 2, 2)))  # (8, 3)
    corners = boxes[:, picks, np.arange(3)]  # (S, 8, 3)
    x, y, z = np.moveaxis((corners - T_world_camera[:3, 3]) @ T_world_camera[:3, :3], -1, 0)
    reaches_behind = (z < _NEAR).any(axis=1, keepdims=True)
    z = np.maximum(z, _NEAR)
    u, v = camera.fx * x / z + camera.cx, camera.fy * y / z + camera.cy
    columns, rows = _spans(u, camera.width), _spans(v, camera.height)
    everything = (slice(None), slice(None))
    return [
        everything if behind else (slice(*row), slice(*column))
        for behind, row, column in zip(reaches_behind, rows, columns, strict=True)
    ]


def _spans(positions: Array, size: int) -> NDArray[np.int64]:
    """Return first and past-last pixel (S, 2) of positions (S, 8), one more for rounding."""
    span = np.stack([np.floor(positions.min(axis=1)) - 1, np.ceil(positions.max(axis=1)) + 1], 1)
    return np.asarray(np.clip(span, 0, size), dtype=np.int64)


def _wave(cycles: Values) -> Values:
    """Return a smooth wave of period 1 and range -1 to 1, like a sine, made of parabolas."""
    x = cycles - np.rint(cycles)  # -0.5 to 0.5
    wave: Values = x * (8 - 16 * np.abs(x))
    return wave


def _dot(a: Values, b: Values) -> Values:
    """Return the sum over the first axis of a * b, added in a fixed order."""
    scalar = b.dtype.type
    x, y, z = a if isinstance(a[0], np.ndarray) else (scalar(value) for value in a)
    total: Values = x * b[0] + y * b[1] + z * b[2]
    return total
