"""A small run with learned features, for tests."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from gsslam import Slam, SlamConfig
from gsslam.config import FeaturesConfig, MappingConfig, PruningConfig
from gsslam.features.teacher import TorchTeacher
from gsslam.run import RunOptions, run_dataset
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.tracking_loop import LoopOptions

SOURCE = Source("synthetic/room_noisy", resolution=(96, 72), max_frames=18)
PLAIN = SlamConfig(
    mapping=MappingConfig(first_iterations=20, iterations=4), pruning=PruningConfig(judgements=2)
)
FEATURES = FeaturesConfig(
    enabled=True,
    dim=8,
    atoms=40,
    first_keyframes=2,
    filling_keyframes=2,
    iterations=3,
    stride=3,
    teacher="given",
)
LEARNING = replace(PLAIN, features=FEATURES)


def teacher(channels: int = 24) -> TorchTeacher:
    """A small encoder with weights that are the same every time."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(3, channels, 8, 8)
    layer.weight = nn.Parameter(torch.randn(layer.weight.shape, generator=generator) / 8)
    layer.bias = nn.Parameter(torch.zeros(channels))
    return TorchTeacher(nn.Sequential(layer, nn.Tanh()), 8)


FACTORY = partial(Slam, teacher=teacher())


def start(out: Path, config: SlamConfig, threads: int = 2, device: str = "cpu") -> RunFolder:
    options = RunOptions(device, LoopOptions(threads=threads, checkpoint_every=0))
    run_dataset(SOURCE.open(), config, out, options=options, source=SOURCE, slam_factory=FACTORY)
    return RunFolder(out)
