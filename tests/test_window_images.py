"""Which keyframes' images lie on a GPU, and that they are the right ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gsslam import window_images
from gsslam.config import MappingConfig, SlamConfig
from gsslam.datasets import open_dataset
from gsslam.keyframes import Keyframe
from gsslam.memory import STAGES
from gsslam.slam import Slam
from gsslam.window_images import WindowImages
from tests.conftest import usable_device

HEIGHT, WIDTH = 6, 10


def keyframe(index: int) -> Keyframe:
    rng = np.random.default_rng(index)
    rgb = torch.from_numpy(rng.integers(0, 256, (3, HEIGHT, WIDTH), dtype=np.uint8))
    depth = torch.from_numpy(rng.uniform(0, 4, (HEIGHT, WIDTH)).astype(np.float32))
    return Keyframe(index, np.eye(4), 1.0, 0.0, rgb, depth)


def windows(keyframes: list[Keyframe], count: int) -> list[list[Keyframe]]:
    """What mapping asks for: each keyframe alone, then with the one before and some older ones."""
    rng = np.random.default_rng(0)
    asked = [[keyframes[0]]]
    for newest in range(1, len(keyframes)):
        older = rng.choice(newest, min(count - 2, newest), replace=False)
        places = dict.fromkeys([newest, newest - 1, *older.tolist()])
        asked += [[keyframes[newest]], [keyframes[place] for place in places][:count]]
    return asked


def test_on_the_cpu_images_are_where_they_are() -> None:
    images = WindowImages("cpu", 8)
    keyframes = [keyframe(i) for i in range(3)]
    for k, (rgb, depth) in zip(keyframes, images.of(keyframes), strict=True):
        assert rgb is k.rgb
        assert depth is k.depth
    assert images.on_device == []
    assert images.bytes() == 0


class Copies:
    """Stands for the pinned memory, which only a machine with a GPU has."""

    made: list[int]

    def __init__(self, like: Keyframe) -> None:
        self.buffer = torch.empty(like.rgb.numel() + 4 * like.depth.numel(), dtype=torch.uint8)

    def copy(self, keyframe: Keyframe, to: torch.Tensor) -> None:
        assert to.shape == self.buffer.shape
        self.made.append(keyframe.index)


def test_a_window_is_all_there_ever_is_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_images, "_Stage", Copies)
    Copies.made = []
    images = WindowImages("meta", 8)
    keyframes = [keyframe(i) for i in range(40)]
    for asked in windows(keyframes, 8):
        copied = len(Copies.made)
        found = images.of(asked)
        held = [k.index for k in images.on_device]
        assert {k.index for k in asked} <= set(held)
        assert len(held) == len(set(held)) <= 8
        assert [rgb.shape for rgb, _ in found] == [(3, HEIGHT, WIDTH)] * len(asked)
        assert len({id(rgb) for rgb, _ in found}) == len(asked)
        if len(asked) > 1:
            # The newest one came before the window, the one before it with the window before.
            assert {asked[0].index, asked[1].index}.isdisjoint(Copies.made[copied:])
    assert images.bytes() == (8 + STAGES) * 7 * HEIGHT * WIDTH


@pytest.mark.gpu
def test_sanitize_images_come_to_the_gpu_as_they_are() -> None:
    usable_device("cuda")
    images = WindowImages("cuda", 8)
    keyframes = [keyframe(i) for i in range(30)]
    for asked in windows(keyframes, 8):
        for k, (rgb, depth) in zip(asked, images.of(asked), strict=True):
            assert rgb.is_cuda
            assert torch.equal(rgb.cpu(), k.rgb)
            assert torch.equal(depth.cpu(), k.depth)
    assert len(images.on_device) == 8
    # What lies on the GPU already is taken from there.
    there = keyframe(31)
    there.rgb, there.depth = there.rgb.cuda(), there.depth.cuda()
    ((rgb, _),) = images.of([there])
    assert rgb is there.rgb


@pytest.mark.gpu
@pytest.mark.parametrize("threads", [1, 2])
def test_only_the_window_of_a_run_lies_on_the_gpu(threads: int) -> None:
    usable_device("cuda")
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=40)
    mapping = MappingConfig(iterations=6, first_iterations=6, window_random=2)
    with Slam(SlamConfig(mapping=mapping), dataset.camera, "cuda", threads=threads) as slam:
        for i in range(len(dataset)):
            slam.track(dataset[i])
        keyframes = slam.keyframes
        assert len(keyframes) > 8
        assert all(k.rgb.device.type == k.depth.device.type == "cpu" for k in keyframes)
        assert not any(k.rgb.is_pinned() for k in keyframes)
        there = slam._mapper._optimizer._images.on_device
        assert len(there) == mapping.window_size + mapping.window_random
        assert any(k is keyframes[-1] for k in there)
