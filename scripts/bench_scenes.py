"""Scenes for the benches: back-projected frames, a map that SLAM made, and made-up ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import Slam, SlamConfig, geometry, open_dataset
from gsslam.camera import Camera
from gsslam.config import DensifyConfig
from gsslam.datasets.base import Dataset
from gsslam.densify import spheres_from_pixels
from gsslam.errors import DatasetError
from gsslam.frame import Frame
from gsslam.pyramid import ImageLevel


@dataclass(frozen=True)
class Scene:
    """Spheres (8, N), a camera and a pose, and the image that is seen from it, if there is one."""

    name: str
    camera: Camera
    spheres: torch.Tensor
    T_camera_world: NDArray[np.float64]
    seen: ImageLevel | None = None

    @property
    def count(self) -> int:
        """Return the number of spheres."""
        return self.spheres.shape[1]

    def title(self) -> str:
        """Return what the scene is called in a table."""
        return f"{self.name}, {self.camera.width}x{self.camera.height}, {self.count:,} spheres"


def room_like_scene(width: int, height: int, count: int, seed: int = 0) -> Scene:
    """Return spheres as a map has them: on surfaces, their size about their distance apart."""
    rng = np.random.default_rng(seed)
    camera = Camera(width, height, 0.87 * width, 0.87 * width, width / 2, height / 2)
    u, v = rng.uniform(0, width, count), rng.uniform(0, height, count)
    # A wavy wall at one to three metres, and a few centimetres of scatter.
    z = 2 + np.sin(7 * u / width) * np.cos(5 * v / height) + 0.03 * rng.normal(size=count)
    spacing = np.sqrt(width * height / count)  # pixels
    radius = spacing * z / camera.fx * np.exp(0.4 * rng.normal(size=count))
    return Scene("wavy wall", camera, _spheres(rng, camera, u, v, z, radius, 1.0), np.eye(4))


def crowded_scene(
    name: str, count: int, size: tuple[int, int], logit: float, seed: int = 0
) -> Scene:
    """Return spheres of 1.5 pixels that crowd in the middle ``size`` pixels of 640 x 480."""
    rng = np.random.default_rng(seed)
    camera = Camera(640, 480, 525.0, 525.0, 320.0, 240.0)
    u = camera.cx + size[0] * rng.uniform(-0.5, 0.5, count)
    v = camera.cy + size[1] * rng.uniform(-0.5, 0.5, count)
    z = rng.uniform(1, 3, count)
    radius = 1.5 * z / camera.fx * np.exp(0.3 * rng.normal(size=count))
    return Scene(name, camera, _spheres(rng, camera, u, v, z, radius, logit), np.eye(4))


def _spheres(
    rng: np.random.Generator,
    camera: Camera,
    u: NDArray[np.float64],
    v: NDArray[np.float64],
    z: NDArray[np.float64],
    radius: NDArray[np.float64],
    logit: float,
) -> torch.Tensor:
    rows = [
        (u - camera.cx) / camera.fx * z,
        (v - camera.cy) / camera.fy * z,
        z,
        np.log(radius),
        logit + rng.normal(size=len(z)),
        *rng.uniform(0, 1, (3, len(z))),
    ]
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def mapped_scene(sequence: Path, width: int, height: int, count: int) -> Scene:
    """Return the first ``count`` spheres of a map of fr1/xyz, seen by its newest keyframe."""
    dataset = open_dataset("tum/fr1_xyz", sequence, resolution=(width, height))
    slam = Slam(SlamConfig(), dataset.camera)
    for index in range(len(dataset)):
        slam.track(dataset[index])
        if slam.map.count >= count:
            break
    spheres = slam.map.live[:, :count].contiguous()
    return Scene("map of fr1/xyz", dataset.camera, spheres, slam.keyframes[-1].T_camera_world)


def back_projected_scene(
    dataset: Dataset, frames: tuple[int, ...], count: int, size: tuple[int, int]
) -> Scene:
    """Return ``count`` spheres of frames at their true poses, seen between second and third."""
    generator = torch.Generator().manual_seed(0)
    pixels = len(frames) * dataset.camera.width * dataset.camera.height
    stride = (pixels / count) ** 0.5
    config = DensifyConfig(stride=1, radius_scale=0.8 * stride, opacity=0.8)
    parts = [_back_projected(dataset[index], config) for index in frames]
    spheres = torch.cat(parts, dim=1)
    kept = torch.randperm(spheres.shape[1], generator=generator)[:count].sort().values
    spheres = spheres[:, kept].contiguous()
    spheres[4] += torch.randn(spheres.shape[1], generator=generator)
    seen = dataset[(frames[1] + frames[2]) // 2]
    camera = dataset.camera.resized(*size)
    return Scene("fr1/xyz", camera, spheres, _pose(seen), _level(seen, camera))


def _pose(frame: Frame) -> NDArray[np.float64]:
    if frame.T_world_camera is None:
        raise DatasetError(f"frame {frame.index} has no ground truth; choose other --frames")
    return geometry.inverse(frame.T_world_camera)


def _back_projected(frame: Frame, config: DensifyConfig) -> torch.Tensor:
    rgb = torch.from_numpy(frame.rgb).permute(2, 0, 1).float() / 255
    depth = torch.from_numpy(frame.depth)
    return spheres_from_pixels(depth > 0, rgb, depth, frame.camera, _pose(frame), config)


def _level(frame: Frame, camera: Camera) -> ImageLevel:
    size = (camera.height, camera.width)
    rgb = torch.from_numpy(frame.rgb).permute(2, 0, 1).float() / 255
    rgb = torch.nn.functional.interpolate(rgb[None], size, mode="area")[0].contiguous()
    depth = torch.from_numpy(frame.depth)[None, None]
    depth = torch.nn.functional.interpolate(depth, size)[0, 0].contiguous()
    return ImageLevel(camera, rgb, depth)
