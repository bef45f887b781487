"""The room of the synthetic sequences: walls, furniture, and the camera's path through it."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.scene import Layer, Material, Rectangle, Sphere, Surface

Array = NDArray[np.float64]

# The path closes after this many frames.
PATH_PERIOD = 240

# Corners of the room and of the boxes in it, metres; z points up.
ROOM = ((-2.2, -1.9, 0.0), (2.2, 1.9, 2.5))
BOXES = (
    ((0.9, -0.9, 0.0), (1.9, 0.3, 0.75)),  # table
    ((1.2, -0.55, 0.75), (1.5, -0.2, 1.1)),  # on the table
    ((1.7, 0.8, 0.0), (2.2, 1.5, 1.8)),  # shelf
    ((0.4, -1.6, 0.0), (0.8, -1.2, 0.5)),  # stool
    ((2.12, -0.5, 1.3), (2.2, 0.5, 1.95)),  # picture
)
SPHERES = (
    ((1.15, 0.05, 0.93), 0.18),  # on the table
    ((0.9, 1.1, 0.32), 0.32),  # on the floor
    ((0.6, -1.4, 0.66), 0.16),  # on the stool
    ((1.4, 0.5, 2.1), 0.2),  # lamp
)
# Cycles a metre, strength and sharpness of the layers of a texture, coarse to fine.
_OCTAVES = ((0.5, 0.2, 1.0), (1.5, 0.2, 3.0), (3.0, 0.16, 2.0), (6.0, 0.12, 1.5))


def build_room() -> tuple[Surface, ...]:
    """Return the surfaces of the room; the same ones at every call."""
    numbers = _Numbers()
    surfaces: list[Surface] = list(_box_faces(*ROOM, numbers, inward=True))
    for low, high in BOXES:
        surfaces += _box_faces(low, high, numbers, inward=False)
    surfaces += [Sphere(np.array(centre), r, _material(numbers)) for centre, r in SPHERES]
    return tuple(surfaces)


def camera_pose(frame: int) -> Array:
    """Return T_world_camera (4, 4) of a smooth closed path, some 2 cm and 0.6 degrees a frame.

    The camera drifts along an ellipse and turns against its own sideways motion.
    """
    angle = np.pi / 2 + 2 * np.pi * frame / PATH_PERIOD
    position = np.array(
        [-0.9 + 0.75 * np.cos(angle), 0.75 * np.sin(angle), 1.3 + 0.1 * np.sin(2 * angle)]
    )
    looked_at = np.array([1.6, -0.8 * np.sin(angle), 0.85 + 0.15 * np.cos(2 * angle)])
    forward = _unit(looked_at - position)
    up = np.array([0.0, 0.05 * np.sin(angle), 1.0])  # leans a little, like a hand-held camera
    right = _unit(np.cross(forward, up))
    T = np.eye(4)
    T[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    T[:3, 3] = position
    return T


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)


class _Numbers:
    """Evenly spread numbers that are the same on every computer (Knuth's generator of 32 bits)."""

    def __init__(self) -> None:
        self._state = 1

    def take(self, low: float, high: float, count: int) -> Array:
        """Return ``count`` numbers between ``low`` and ``high``."""
        values = []
        for _ in range(count):
            self._state = (1664525 * self._state + 1013904223) % 2**32
            values.append(low + (high - low) * self._state / 2**32)
        return np.array(values)


def _material(numbers: _Numbers) -> Material:
    base = numbers.take(0.4, 0.7, 1) + numbers.take(-0.15, 0.15, 3)
    return Material(base, tuple(_layer(numbers, *octave) for octave in _OCTAVES))


def _layer(numbers: _Numbers, frequency: float, strength: float, sharpness: float) -> Layer:
    """Return two oblique waves that cross, in a colour of their own."""
    first = numbers.take(-1, 1, 3)
    second: NDArray[np.float64] = np.cross(first, numbers.take(-1, 1, 3)).astype(np.float64)
    directions = np.stack([_unit(first), _unit(second)])
    amplitude = strength * (numbers.take(-1, 1, 1) + numbers.take(-0.7, 0.7, 3))
    return Layer(frequency * directions, numbers.take(0, 1, 2), amplitude, sharpness)


def _box_faces(
    low: tuple[float, float, float],
    high: tuple[float, float, float],
    numbers: _Numbers,
    *,
    inward: bool,
) -> list[Rectangle]:
    """Return the six sides of a box, seen from inside (a room) or from outside (furniture)."""
    faces = []
    for axis, (corner, outward) in itertools.product(range(3), ((low, -1.0), (high, 1.0))):
        face_low, face_high = np.array(low), np.array(high)
        face_low[axis] = face_high[axis] = corner[axis]
        sign = -outward if inward else outward
        material = _material(numbers)
        faces.append(Rectangle(axis, corner[axis], face_low, face_high, sign, material))
    return faces
