"""Synthetic sequences: a room rendered on the fly, exactly or as a Kinect-like sensor sees it."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.catalogue import Entry
from gsslam.datasets.room import build_room, camera_pose
from gsslam.datasets.scene import Cast, Surface, render
from gsslam.frame import Frame
from gsslam.trajectory import Trajectory

_CAMERA = Camera(320, 240, 277.0, 277.0, 160.0, 120.0)
_FRAMES_PER_SECOND = 30.0
_DEFAULT_FRAMES = 60

# A Kinect: depth = focal length * baseline / disparity, disparity in eighths of a pixel.
_DISPARITY_STEPS = 8 * 580.0 * 0.075
# Colour noise (0 to 1) and the slow drift of exposure (relative; frames a cycle).
_COLOUR_SIGMA = 0.008
_EXPOSURE_DRIFT = 0.03
_EXPOSURE_PERIOD = 150
# Surfaces seen flatter than this (cosine to the line of sight) return no pattern.
_GRAZING_COSINE = 0.17
# A relative step of depth between neighbours that casts a shadow in the pattern.
_EDGE_STEP = 0.04


def open_sequence(entry: Entry, folder: Path, options: ReadOptions) -> Dataset:
    """Open the room; ``folder`` is not needed."""
    return SyntheticRoom(entry.name, options, is_noisy=entry.name.endswith("_noisy"))


class SyntheticRoom(Dataset):
    """A Dataset that renders each frame when it is asked for, the same whatever the order."""

    def __init__(self, name: str, options: ReadOptions, *, is_noisy: bool) -> None:
        self._name = name
        self._is_noisy = is_noisy
        self._seed = options.seed
        self._stride = options.stride
        self._length = options.max_frames or len(range(0, _DEFAULT_FRAMES, options.stride))
        self._camera = options.target(_CAMERA)
        self._surfaces = build_room()

    @property
    def name(self) -> str:
        """Catalogue identifier."""
        return self._name

    @property
    def camera(self) -> Camera:
        """The camera of every frame."""
        return self._camera

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """Seconds, (N,)."""
        return np.arange(self._length) * self._stride / _FRAMES_PER_SECOND

    @property
    def ground_truth(self) -> Trajectory:
        """Exact poses of all frames."""
        steps = [index * self._stride for index in range(self._length)]
        return Trajectory(self.timestamps, np.stack([camera_pose(step) for step in steps]))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Frame:
        """Render frame ``index``."""
        index = range(self._length)[index]
        step = index * self._stride
        pose = camera_pose(step)
        colour, cast = render(self._surfaces, self._camera, pose)
        depth = cast.depth
        if self._is_noisy:
            random = np.random.default_rng([self._seed, step])
            depth = noisy_depth(cast, self._surfaces, pose[:3, 3], random)
            colour = noisy_colour(colour, step, random)
        return Frame(
            index=index,
            timestamp=step / _FRAMES_PER_SECOND,
            rgb=np.rint(colour * 255).astype(np.uint8),
            depth=depth.astype(np.float32),
            camera=self._camera,
            T_world_camera=pose,
        )


def noisy_depth(
    cast: Cast,
    surfaces: tuple[Surface, ...],
    origin: NDArray[np.float64],
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Return depth (H, W) in metres as a Kinect measures it, 0 where it measures nothing.

    Axial noise by Nguyen, Izadi and Lovell (2012), equation 1; steps of disparity; no measurement
    at grazing angles and beside edges of depth.
    """
    z = cast.depth
    noisy = z + (0.0012 + 0.0019 * (z - 0.4) ** 2) * random.standard_normal(z.shape)
    quantized = _DISPARITY_STEPS / np.rint(_DISPARITY_STEPS / noisy)
    square = np.ones((3, 3))
    at_edge = cv2.dilate(z, square) - cv2.erode(z, square) > _EDGE_STEP * z
    quantized[at_edge | (_cosine_to_ray(cast, surfaces, origin) < _GRAZING_COSINE)] = 0
    return quantized


def noisy_colour(
    colour: NDArray[np.float32], step: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """Return ``colour`` (H, W, 3), 0 to 1, under drifting exposure and with pixel noise."""
    gain = np.float32(1 + _EXPOSURE_DRIFT * np.sin(2 * np.pi * step / _EXPOSURE_PERIOD))
    noise = random.standard_normal(colour.shape, dtype=np.float32) * np.float32(_COLOUR_SIGMA)
    return np.clip(colour * gain + noise, 0, 1)


def _cosine_to_ray(
    cast: Cast, surfaces: tuple[Surface, ...], origin: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the cosine (H, W) between each ray, turned round, and the surface that it meets."""
    cosine = np.zeros(cast.depth.shape)
    for index, surface in enumerate(surfaces):
        seen = cast.surface == index
        if seen.any():
            rays = cast.rays[:, seen]
            points = origin[:, None] + rays * cast.depth[seen]
            dot = (surface.normals(points) * rays).sum(axis=0)
            cosine[seen] = -dot / np.linalg.norm(rays, axis=0)
    return cosine
