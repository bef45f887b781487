"""Keyframes: what the map is built from, and which frames become one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.config import KeyframeConfig
from gsslam.slam_state import Arrays


def is_heldout(index: int, every: int) -> bool:
    """Return whether frame ``index`` is kept out of the map, to score a view that it never saw.

    One frame in ``every`` is held out, the last of each group, so that frame 0 can start the map;
    0 holds none out.
    """
    return every > 0 and index % every == every - 1


# Fields of a keyframe that are stored, and their types.
_STORED = {
    "index": np.int64,
    "T_camera_world": np.float64,
    "gain": np.float64,
    "bias": np.float64,
    "moment1": np.float64,
    "moment2": np.float64,
    "steps": np.int64,
    "has_images": np.bool_,
}
# Colours (3, H, W) uint8 and depth (H, W) float32 of a keyframe.
Images = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Keyframe:
    """A frame that the map explains; pose and exposure are refined with the map."""

    index: int
    # (4, 4) world points to camera points.
    T_camera_world: NDArray[np.float64]
    # Brightness of the image against the map: image = gain * map + bias.
    gain: float
    bias: float
    # (3, H, W) uint8 and (H, W) float32 metres, in the host's memory: a GPU takes those of the
    # window from there.
    rgb: torch.Tensor
    depth: torch.Tensor
    # Adam moments of the twist, gain and bias, and the steps taken.
    moment1: NDArray[np.float64] = field(default_factory=lambda: np.zeros(8))
    moment2: NDArray[np.float64] = field(default_factory=lambda: np.zeros(8))
    steps: int = 0

    @cached_property
    def digest(self) -> str:
        """Hash of the images, which never change until they are dropped."""
        digest = hashlib.sha256(self.rgb.numpy().tobytes())
        digest.update(self.depth.numpy().tobytes())
        return digest.hexdigest()

    @property
    def has_images(self) -> bool:
        """Whether the map can still be optimised against this keyframe."""
        return self.rgb.numel() > 0

    def drop_images(self) -> Images:
        """Give the images away; pose and exposure stay, for the frames that hang on them."""
        images = self.rgb, self.depth
        self.rgb, self.depth = no_images()
        return images

    def move_images(self, to: Images) -> None:
        """Copy the images into tensors of the same shapes, and keep those."""
        self.rgb, self.depth = to[0].copy_(self.rgb), to[1].copy_(self.depth)


def no_images() -> Images:
    """Return what a keyframe has whose images were dropped."""
    return torch.empty(0, dtype=torch.uint8), torch.empty(0)


def keyframe_arrays(keyframes: list[Keyframe]) -> Arrays:
    """Return what is kept of K keyframes beside their images, as arrays (K, ...)."""
    return {
        name: np.array([getattr(keyframe, name) for keyframe in keyframes], dtype=dtype)
        for name, dtype in _STORED.items()
    }


def keyframes_from_arrays(arrays: Arrays, read_images: Callable[[int], Images]) -> list[Keyframe]:
    """Return the keyframes of ``keyframe_arrays``; ``read_images`` reads what was not dropped.

    It is given the frame's index.
    """
    keyframes = []
    for k in range(len(arrays["index"])):
        index = int(arrays["index"][k])
        kept = bool(arrays["has_images"][k])
        images = read_images(index) if kept else no_images()
        keyframes.append(
            Keyframe(
                index,
                arrays["T_camera_world"][k].astype(np.float64),
                float(arrays["gain"][k]),
                float(arrays["bias"][k]),
                *images,
                arrays["moment1"][k].astype(np.float64),
                arrays["moment2"][k].astype(np.float64),
                int(arrays["steps"][k]),
            )
        )
    return keyframes


def drop_least_useful(keyframes: list[Keyframe], newest: int) -> list[Images]:
    """Drop the images that tell least that others do not; returns them, or none if all are needed.

    They are the older one's of the two views that are nearest to each other, metres and radians
    added. The first keyframe and the ``newest`` last ones are spared.
    """
    kept = [i for i, keyframe in enumerate(keyframes) if keyframe.has_images]
    candidates = [k for k, i in enumerate(kept) if 0 < i < len(keyframes) - newest]
    if not candidates:
        return []
    T = np.stack([keyframes[i].T_camera_world for i in kept])  # (K, 4, 4)
    R = T[:, :3, :3]
    centres = -np.einsum("kji,kj->ki", R, T[:, :3, 3])
    cosine = (np.einsum("aij,bij->ab", R[candidates], R) - 1) / 2  # (candidates, K)
    apart = np.arccos(np.clip(cosine, -1, 1))
    apart += np.linalg.norm(centres[candidates, None] - centres[None], axis=2)
    apart[np.arange(len(candidates)), candidates] = np.inf
    return [keyframes[kept[candidates[int(np.argmin(apart.min(axis=1)))]]].drop_images()]


def keyframe_is_due(
    frames_since_last: int,
    T_last_camera: NDArray[np.float64],
    valid_share: float,
    depth: torch.Tensor,
    config: KeyframeConfig,
) -> bool:
    """Decide by the time, motion and overlap since the last keyframe.

    ``T_last_camera`` maps this camera's points to the last keyframe's; ``valid_share`` is the share
    of pixels that the map covers; ``depth`` (H, W) is in metres, and without a measurement there is
    nothing to map.
    """
    in_time = frames_since_last >= config.max_interval
    if not in_time and frames_since_last < config.min_interval:
        return False
    measured = depth[depth > 0]
    if len(measured) == 0:
        return False
    if in_time or valid_share < config.min_overlap:
        return True
    xi = geometry.log_se3(T_last_camera)
    if float(np.linalg.norm(xi[3:])) > math.radians(config.rotation_deg):
        return True
    return float(np.linalg.norm(xi[:3])) > config.translation * float(measured.median())
