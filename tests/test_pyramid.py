"""The resolutions of a frame, in buffers that are used again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from gsslam import Camera, Frame
from gsslam.pyramid import FrameBuffers, build_pyramid

CAMERA = Camera(24, 20, 20.0, 20.0, 12.0, 10.0)


def frame(seed: int) -> Frame:
    random = np.random.default_rng(seed)
    depth = random.uniform(1.0, 1.04, (20, 24)).astype(np.float32)
    depth[random.uniform(size=depth.shape) < 0.2] = 0
    depth[0, :3] = np.nan, np.inf, -np.inf
    rgb = random.integers(0, 256, (20, 24, 3), dtype=np.uint8)
    return Frame(0, 0.0, rgb, depth, CAMERA)


def test_every_level_halves_the_one_before(device: str) -> None:
    levels = build_pyramid(frame(0), 5, device)
    # 20 rows can be halved twice.
    assert [(level.camera.width, level.camera.height) for level in levels] == [
        *((24, 20), (12, 10), (6, 5))
    ]
    assert [level.camera.cx for level in levels] == [12.0, 6.0, 3.0]
    expected = torch.from_numpy(frame(0).rgb).permute(2, 0, 1) / 255
    # A GPU multiplies by the inverse: the last digit may differ.
    torch.testing.assert_close(levels[0].rgb.cpu(), expected, rtol=1e-6, atol=0)
    for fine, coarse in pairwise(levels):
        blocks = fine.rgb.unfold(1, 2, 2).unfold(2, 2, 2)
        torch.testing.assert_close(coarse.rgb, blocks.mean(dim=(3, 4)), rtol=0, atol=1e-6)


def test_depth_is_the_mean_of_the_measured_pixels_and_nothing_across_an_edge(device: str) -> None:
    source = frame(1)
    source.depth[4:6, 4:6] = [[1.0, 0.0], [1.02, 0.0]]
    source.depth[4:6, 6:8] = [[1.0, 3.0], [1.0, 3.0]]
    source.depth[4:6, 8:10] = 0
    fine, coarse = build_pyramid(source, 2, device)
    assert torch.isfinite(fine.depth).all()
    assert not fine.depth[0, :3].any()
    assert coarse.depth[2, 2:5].tolist() == [np.float32(1.01), 1.0, 0.0]


def test_buffers_are_used_again_and_give_the_same(device: str) -> None:
    buffers = FrameBuffers(CAMERA, 3, device)
    first = [level.rgb.data_ptr() for level in buffers.load(frame(2))]
    levels = buffers.load(replace(frame(3), index=1))
    assert [level.rgb.data_ptr() for level in levels] == first
    for again, fresh in zip(levels, build_pyramid(frame(3), 3, device), strict=True):
        assert torch.equal(again.rgb, fresh.rgb)
        assert torch.equal(again.depth, fresh.depth)
