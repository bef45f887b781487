"""Learn features of a sequence's map, and measure and draw them on frames that it never saw.

Run: python -m scripts.bench_features --sequence …/seven_scenes_redkitchen [--picture heat.jpg]

SLAM runs on every second of the first frames; three of four of these teach the map. The picture
shows, for views of the map, how alike it is to the pixel marked in the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.console import Console
from torch.nn.functional import cosine_similarity

from gsslam import Camera, Frame, Slam, SlamConfig, open_dataset
from gsslam.datasets.base import Dataset
from gsslam.features import (
    FeatureField,
    FeatureHead,
    StreamingKMeans,
    Teacher,
    heat_map,
    open_teacher,
)


@dataclass
class Options:
    """What is learned."""

    sequence: Path
    dataset: str = "7scenes/redkitchen"
    frames: int = 60
    atoms: int = 1000
    rounds: int = 4
    picture: Path | None = None
    # Column and row, of 320 by 240.
    pixel: tuple[int, int] = (210, 150)


Views = list[tuple[torch.Tensor, torch.Tensor]]


def open_frames(options: Options, resolution: tuple[int, int]) -> Dataset:
    """Open every second frame of the sequence."""
    return open_dataset(
        options.dataset,
        options.sequence,
        resolution=resolution,
        max_frames=options.frames,
        stride=2,
    )


def image_of(frame: Frame) -> torch.Tensor:
    """Return a frame's colours (3, H, W), 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(frame.rgb)).permute(2, 0, 1) / 255


def run_slam(options: Options) -> tuple[torch.Tensor, Camera, list[NDArray[np.float64]]]:
    """Return the map's spheres (8, N), the camera at 160x120, T_camera_world of all frames."""
    dataset = open_frames(options, (160, 120))
    with Slam(SlamConfig(), dataset.camera) as slam:
        for i in range(len(dataset)):
            slam.track(dataset[i])
        poses = [np.linalg.inv(T) for T in slam.finish().T_world_camera]
        return slam.map.live.clone(), dataset.camera, poses


def views_of(options: Options, poses: list[NDArray[np.float64]], teacher: Teacher) -> Views:
    """Return poses and encoded images at 320x240."""
    dataset = open_frames(options, (320, 240))
    features = [teacher.encode(image_of(dataset[i])) for i in range(len(dataset))]
    return [(torch.from_numpy(T), f) for T, f in zip(poses, features, strict=True)]


def mean_cosine(field: FeatureField, views: Views) -> float:
    """Return the mean cosine of decoded features where the map covers the view."""
    cosines = []
    for T, features in views:
        decoded, silhouette = field.decode(T)
        cosine = cosine_similarity(decoded, field.target(features), dim=0)
        cosines.append(float(cosine[silhouette > 0.5].mean()))
    return float(np.mean(cosines))


def draw(field: FeatureField, views: Views, options: Options, mean: torch.Tensor) -> None:
    """Write heat maps of four views beside their images."""
    dataset = open_frames(options, (320, 240))
    frames, rows = [dataset[i] for i in range(len(dataset))], []
    column, row = options.pixel
    decoded, _ = field.decode(views[0][0])
    feature = decoded[:, row * field.camera.height // 240, column * field.camera.width // 320]
    for i in np.linspace(0, len(frames) - 1, 4).astype(int):
        heat = heat_map(field.decode(views[i][0])[0], feature, mean).clamp(0, 1).numpy()
        levels = (255 * cv2.resize(heat, (320, 240))).astype(np.uint8)
        picture = np.ascontiguousarray(frames[i].rgb[:, :, ::-1])
        blend = cv2.addWeighted(picture, 0.5, cv2.applyColorMap(levels, cv2.COLORMAP_JET), 0.5, 0)
        if i == 0:
            cv2.circle(picture, (column, row), 6, (0, 0, 255), 2)
        rows.append(np.vstack([picture, blend]))
    cv2.imwrite(str(options.picture), np.hstack(rows))


def main() -> None:
    """Run it."""
    options, console = tyro.cli(Options, description=__doc__), Console()
    torch.set_num_threads(1)
    spheres, camera, poses = run_slam(options)
    views = views_of(options, poses, open_teacher("efficientnet-lite0"))
    taught = [view for i, view in enumerate(views) if i % 4 != 2]
    held_out = [view for i, view in enumerate(views) if i % 4 == 2]
    kmeans = StreamingKMeans(options.atoms, views[0][1].shape[0])
    for _, features in taught:
        kmeans.update(features.flatten(1).mT)
    mean = kmeans.centres.mean(0)
    field = FeatureField(spheres, camera, FeatureHead(kmeans.centres), step=2)
    for view in taught:
        field.begin(*view)
    console.print(
        f"{spheres.shape[1]} spheres; held-out cosine before {mean_cosine(field, held_out):.3f}"
    )
    order = np.random.default_rng(0)
    for i in range(options.rounds):
        loss = [field.learn(*taught[j]) for j in order.permutation(len(taught))]
        cosine = mean_cosine(field, held_out)
        console.print(f"round {i}: loss {np.mean(loss):.3f}, held-out cosine {cosine:.3f}")
    if options.picture:
        draw(field, views, options, mean)


if __name__ == "__main__":
    main()
