"""Measure the learned features of a run on the frames that were held out of its map.

Run: python -m scripts.bench_features runs/7scenes/redkitchen/latest
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.console import Console
from tyro.conf import Positional

from gsslam import Frame, geometry
from gsslam.datasets.base import Dataset
from gsslam.features import MapFeatures
from gsslam.features.files import read_features
from gsslam.features.query import poses_of
from gsslam.keyframes import is_heldout
from gsslam.run_folder import RunFolder
from gsslam.source import Source

Poses = Mapping[int, NDArray[np.float64]]


@dataclass
class Options:
    """What is measured."""

    # Folder of a run with features.
    run: Positional[Path]
    # Every n-th held-out frame.
    every: int = 1
    # One pixel in stride x stride is compared.
    strides: tuple[int, ...] = (16, 8, 4)
    # Share of the frame that the keyframe must see for it to be the right one.
    overlap: float = 0.5


def image_of(frame: Frame) -> torch.Tensor:
    """Return a frame's colours (3, H, W), 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(frame.rgb)).permute(2, 0, 1) / 255


def overlap(frame: Frame, other: Frame, T_other_frame: NDArray[np.float64]) -> float:
    """Return the share of a frame's measured pixels whose points another one sees too."""
    camera, depth = frame.camera, frame.depth[::4, ::4]
    row, column = (depth > 0).nonzero()
    z = depth[row, column].astype(np.float64)
    x = (4 * column + 0.5 - camera.cx) / camera.fx * z
    y = (4 * row + 0.5 - camera.cy) / camera.fy * z
    points = T_other_frame[:3, :3] @ np.stack([x, y, z]) + T_other_frame[:3, 3:]
    points = points[:, points[2] > 0.01]
    column = np.floor(points[0] / points[2] * camera.fx + camera.cx).astype(int)
    row = np.floor(points[1] / points[2] * camera.fy + camera.cy).astype(int)
    inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height)
    there = other.depth[row[inside], column[inside]]
    same = np.abs(there - points[2, inside]) < 0.05 + 0.05 * points[2, inside]
    return float((same | (there == 0)).sum() / max(len(z), 1))


def cosines(
    features: MapFeatures, dataset: Dataset, poses: Poses, frames: list[int], stride: int
) -> NDArray[np.float64]:
    """Return the mean cosines (2) of decoded features to the encoder's: in float32, in W4A8."""
    heads = features.head, features.quantized_head()
    found = []
    for i in frames:
        image, pose = image_of(dataset[i]), poses[i]
        found.append([features.agreement(image, pose, stride=stride, head=h) for h in heads])
    mean: NDArray[np.float64] = np.array(found).mean(0)
    return mean


def recognized(
    features: MapFeatures, dataset: Dataset, poses: Poses, frames: list[int]
) -> list[float]:
    """Return the overlap of each frame with the keyframe that is ranked first."""
    overlaps = []
    for i in frames:
        frame = dataset[i]
        first = features.recognize(image_of(frame), 1)[0].name
        relative = geometry.inverse(poses[first]) @ poses[i]
        overlaps.append(overlap(frame, dataset[first], relative))
    return overlaps


def main() -> None:
    """Run it."""
    options, console = tyro.cli(Options, description=__doc__), Console()
    torch.set_num_threads(1)
    folder = RunFolder(options.run)
    config, run = folder.read_config()
    dataset, poses = Source.from_values(run).open(), poses_of(folder)
    features = read_features(folder)
    held_out = [i for i in poses if is_heldout(i, config.keyframes.heldout_every)]
    held_out = held_out[:: options.every]
    console.print(
        f"{features.map.count} spheres, {len(features.tokens)} keyframes,"
        f" {len(held_out)} held-out frames"
    )
    for stride in options.strides:
        exact, quantized = cosines(features, dataset, poses, held_out, stride)
        console.print(
            f"cosine to the encoder, one pixel in {stride} x {stride}: {exact:.4f},"
            f" with W4A8 {quantized:.4f}"
        )
    found = np.array(recognized(features, dataset, poses, held_out))
    console.print(
        f"right keyframe first: {(found >= options.overlap).mean():.1%}, least overlap"
        f" {found.min():.2f}"
    )


if __name__ == "__main__":
    main()
