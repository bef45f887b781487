"""A frame as the kernels read it, at several resolutions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from gsslam.camera import Camera
from gsslam.frame import Frame


@dataclass(frozen=True)
class ImageLevel:
    """One resolution of a frame."""

    camera: Camera
    # (3, H, W) float32, 0 to 1.
    rgb: torch.Tensor
    # (H, W) float32 metres, 0 where nothing was measured.
    depth: torch.Tensor


class FrameBuffers:
    """Where the frames of a camera lie for the kernels; allocated once, used again for every frame.

    Host memory is pinned where they go to a GPU. What ``load`` returns holds until the next frame.
    """

    def __init__(self, camera: Camera, levels: int, device: torch.device | str = "cpu") -> None:
        """Make room for full, half, quarter ... resolution; fewer where a side becomes odd."""
        height, width = camera.height, camera.width
        pinned = torch.device(device).type == "cuda"
        self._host_rgb = torch.empty((height, width, 3), dtype=torch.uint8, pin_memory=pinned)
        self._host_depth = torch.empty((height, width), pin_memory=pinned)
        self._rgb = torch.empty((height, width, 3), dtype=torch.uint8, device=device)
        self._depth = torch.empty((height, width), device=device)
        self._levels: list[ImageLevel] = []
        while True:
            rgb = torch.empty((3, height, width), device=device)
            resized = camera.resized(width, height)
            self._levels.append(
                ImageLevel(resized, rgb, torch.empty((height, width), device=device))
            )
            if len(self._levels) == levels or height % 2 or width % 2:
                break
            height, width = height // 2, width // 2

    def load(self, frame: Frame) -> list[ImageLevel]:
        """Return the frame at every resolution, the finest first."""
        self._host_rgb.copy_(torch.from_numpy(frame.rgb))
        self._host_depth.copy_(torch.from_numpy(frame.depth))
        self._rgb.copy_(self._host_rgb, non_blocking=True)
        self._depth.copy_(self._host_depth, non_blocking=True)
        finest = self._levels[0]
        torch.div(self._rgb.permute(2, 0, 1), 255, out=finest.rgb)
        torch.nan_to_num(self._depth, nan=0.0, posinf=0.0, neginf=0.0, out=finest.depth)
        for fine, coarse in pairwise(self._levels):
            coarse.rgb.copy_(_halved(fine.rgb))
            coarse.depth.copy_(_halved_depth(fine.depth))
        return self._levels

    def copy_images(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loaded frame's colours (3, H, W) uint8 and depth (H, W) in metres, copied.

        They lie in the host's memory whatever the device. Depth is 0 where it is not finite.
        """
        rgb = self._host_rgb.permute(2, 0, 1)
        depth = torch.nan_to_num(self._host_depth, nan=0.0, posinf=0.0, neginf=0.0)
        return rgb.clone(memory_format=torch.contiguous_format), depth


def build_pyramid(
    frame: Frame, levels: int, device: torch.device | str = "cpu"
) -> list[ImageLevel]:
    """Return the frame at full, half, quarter ... resolution, in buffers of its own."""
    return FrameBuffers(frame.camera, levels, device).load(frame)


def _halved(planes: torch.Tensor) -> torch.Tensor:
    """Average 2 x 2 pixels of (C, H, W)."""
    return torch.nn.functional.avg_pool2d(planes[None], 2)[0]


def _halved_depth(depth: torch.Tensor) -> torch.Tensor:
    """Average the measured ones of 2 x 2 pixels, but nothing across an edge: the nearest wins."""
    h, w = depth.shape
    blocks = depth.reshape(h // 2, 2, w // 2, 2).permute(0, 2, 1, 3).reshape(h // 2, w // 2, 4)
    nearest = torch.where(blocks > 0, blocks, torch.inf).amin(dim=2, keepdim=True)
    same = (blocks > 0) & (blocks < 1.05 * nearest)
    return (blocks * same).sum(dim=2) / same.sum(dim=2).clamp(min=1)
