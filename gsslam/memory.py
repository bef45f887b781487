"""The memory budget: what counts, what is held, and what the map and the keyframes may take.

A run's memory is bounded by two numbers that follow from the budget before the first frame: the
most spheres and the most keyframes whose images are kept. They depend on nothing that is measured,
so that the same budget gives the same map every time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import torch

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.errors import ConfigError
from gsslam.raster import constants as c
from gsslam.reader import FRAMES_AHEAD

MEGABYTE = 1_000_000
# Frames decoded ahead of tracking, the one being decoded, and the one that is tracked.
_FRAMES_HELD = FRAMES_AHEAD + 2
# Colour bytes and depth of a pixel.
_PIXEL_BYTES = 3 + 4
# Planes of float32 that come and go with a frame: its pyramid, and what insertion computes.
_FRAME_PLANES = 6 + 16
# Planes that the mapper holds: images, gradients, maps of D-SSIM.
_MAPPER_PLANES = {"cpu": 2 * 14 + 9, "cuda": 16 + 9}
# Keyframes whose images are on their way to a GPU at a time.
STAGES = 2
# Bytes for each sphere that fits into the map, beside the map's own: the lists of the mapper and
# of the tracker, for four tiles or twelve cells a sphere.
_MAPPER_BYTES = {"cpu": 550, "cuda": 850}
_TRACKER_BYTES = {"cpu": 300, "cuda": 320}
# The copy of the map that tracking reads.
_SNAPSHOT_BYTES = 4 * c.ROW_FEATURE
# What is kept of every frame for good: pose and record.
RECORD_BYTES = 400
# The same of a keyframe: pose, exposure, moments; and the small image by which it is found again.
THUMBNAIL_PIXELS = 15, 20
THUMBNAIL_BYTES = 4 * THUMBNAIL_PIXELS[0] * THUMBNAIL_PIXELS[1]
KEYFRAME_BYTES = RECORD_BYTES + THUMBNAIL_BYTES
# Keyframes whose images are held beside the kept ones: on the way to mapping, and to be used again.
_PASSING_KEYFRAMES = 2
# Share of the memory beyond the fixed one that spheres may take; the rest is the keyframes'.
_SPHERES_SHARE = 0.6
# Keyframes without which mapping makes no sense, beside the newest ones.
_LEAST_OLDER_KEYFRAMES = 2

_UNITS = {"": 1.0, "mb": 1.0, "gb": 1e3, "mib": 1.048576, "gib": 1073.741824}


@dataclass(frozen=True)
class MemoryUse:
    """Bytes held, on the CPU and the GPU together, by what holds them."""

    parameters: int = 0
    # The optimiser's: gradients, moments, step counts.
    moments: int = 0
    statistics: int = 0
    # Images and poses.
    keyframes: int = 0
    # Projected spheres, and which tiles they reach.
    lists: int = 0
    # Images in work, frames read ahead, poses of all frames.
    buffers: int = 0

    def __add__(self, other: MemoryUse) -> MemoryUse:
        """Return the sum, part by part."""
        return MemoryUse(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(MemoryUse))
        )

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(getattr(self, f.name) for f in fields(self))


def tensor_bytes(*tensors: torch.Tensor) -> int:
    """Return how many bytes the elements of some tensors take."""
    return sum(t.numel() * t.element_size() for t in tensors)


def parse_megabytes(text: str) -> float:
    """Return the megabytes (10^6 bytes) of a text such as ``512MB`` or ``2 GiB``.

    A number alone is megabytes. Raises ConfigError for anything else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS or float(match[1]) == 0:
        raise ConfigError(f"memory budget {text!r} must be a size such as 512MB or 2GB")
    return float(match[1]) * _UNITS[match[2]]


def working_bytes(pixels: int) -> int:
    """Return what frames of so many pixels take that are read ahead and worked on."""
    return (_FRAMES_HELD * _PIXEL_BYTES + 4 * _FRAME_PLANES) * pixels


@dataclass(frozen=True)
class FeatureBytes:
    """What learned features take, beside the queries that are part of the map."""

    # Dictionary, head and its optimiser, a view in work.
    fixed: int = 0
    # The encoder's features of a keyframe.
    keyframe: int = 0
    # Of each sphere: tracking's copy of its query, and the lists by which it is blended.
    sphere: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """What a budget leaves for the map."""

    # Most spheres.
    capacity: int
    # Most keyframes whose images are kept, while few frames were recorded; None: all.
    keyframes: int | None
    # Bytes that the mapper may hold; None: no limit.
    mapper_limit: int | None
    # Of a keyframe's images, and of its features.
    image_bytes: int
    # Keyframes whose images are kept whatever comes.
    least_keyframes: int

    def keyframes_beside(self, records: int) -> int:
        """Return the most keyframes whose images fit beside so many bytes of records."""
        most = (self.keyframes or 0) - -(-records // self.image_bytes)
        return max(most, self.least_keyframes)


def plan_memory(
    config: SlamConfig,
    camera: Camera,
    device: torch.device | str,
    bytes_per_sphere: int,
    features: FeatureBytes = FeatureBytes(),
) -> MemoryPlan:
    """Divide the budget; raises ConfigError where it is too small for even one frame.

    ``bytes_per_sphere`` is what the map's own arrays take.
    """
    pixels = camera.width * camera.height
    image_bytes = _PIXEL_BYTES * pixels + features.keyframe
    least_keyframes = config.mapping.window_size + _LEAST_OLDER_KEYFRAMES
    if config.map.memory_budget_mb == 0:
        return MemoryPlan(config.map.capacity, None, None, image_bytes, least_keyframes)
    limit = int(config.map.memory_budget_mb * MEGABYTE)
    kind = torch.device(device).type
    fixed = working_bytes(pixels) + 4 * _MAPPER_PLANES[kind] * pixels + features.fixed
    if kind != "cpu":
        window = config.mapping.window_size + config.mapping.window_random
        fixed += (window + STAGES) * _PIXEL_BYTES * pixels
    tracking_each = _TRACKER_BYTES[kind] + _SNAPSHOT_BYTES
    each = bytes_per_sphere + _MAPPER_BYTES[kind] + tracking_each + features.sphere
    first_spheres = min(pixels // config.densify.stride**2, config.map.capacity)
    fixed += _PASSING_KEYFRAMES * image_bytes
    least = fixed + least_keyframes * image_bytes + first_spheres * each
    if least > limit:
        raise ConfigError(
            f"a memory budget of {limit / MEGABYTE:g} MB is too small for frames of"
            f" {camera.width}x{camera.height}: give at least {-(-least // MEGABYTE)} MB"
            " or a smaller resolution"
        )
    free = limit - fixed
    mapper_limit = limit - working_bytes(pixels)
    spheres = max(first_spheres, int(_SPHERES_SHARE * free / each))
    capacity = min(config.map.capacity, spheres)
    keyframes = (free - capacity * each) // image_bytes
    mapper_limit -= capacity * tracking_each
    most = max(keyframes, least_keyframes)
    return MemoryPlan(capacity, most, mapper_limit, image_bytes, least_keyframes)
