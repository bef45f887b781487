"""A frame as the kernels read it, at several resolutions."""

from __future__ import annotations

from dataclasses import dataclass

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


def build_pyramid(
    frame: Frame, levels: int, device: torch.device | str = "cpu"
) -> list[ImageLevel]:
    """Return the frame at full, half, quarter ... resolution; fewer where a side becomes odd."""
    rgb = torch.from_numpy(frame.rgb).to(device).permute(2, 0, 1).contiguous().float().div_(255)
    depth = measured_depth(frame, device)
    pyramid = [ImageLevel(frame.camera, rgb, depth)]
    while len(pyramid) < levels and not (rgb.shape[1] % 2 or rgb.shape[2] % 2):
        rgb, depth = _halved(rgb), _halved_depth(depth)
        camera = frame.camera.resized(rgb.shape[2], rgb.shape[1])
        pyramid.append(ImageLevel(camera, rgb, depth))
    return pyramid


def measured_depth(frame: Frame, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return the frame's depth (H, W) in metres, 0 where it is not finite."""
    depth = torch.from_numpy(frame.depth).to(device)
    return torch.nan_to_num(depth, nan=0.0, posinf=0.0, neginf=0.0)


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
