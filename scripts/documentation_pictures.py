"""Draw the pictures of docs/how_it_works.md from a run over the synthetic room.

Run: python -m scripts.documentation_pictures [--out FOLDER]
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tyro
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets import open_dataset
from gsslam.frame import Frame
from gsslam.presets import load_preset
from gsslam.rendering import MapRenderer
from gsslam.report.figure import save_png
from gsslam.results import SphereState
from gsslam.slam import Slam
from gsslam.trace import Trace

Image = NDArray[np.float32]

# Views of the growing map are kept after so many frames.
_STAGES = (1, 15, 45)
# How many frames old the pose is from which tracking is shown.
_FRAMES_BACK = 8
# Spheres are shown at this share of their radius, so that they can be told apart.
_SMALL = 1 / 3
_SPAN_COLOURS = {"tracking": "#1f6feb", "mapping": "#1a7f37", "waiting for mapping": "#bc4c00"}


@dataclass(frozen=True)
class Options:
    """Where the pictures go, and the size of the views in them."""

    out: Path = Path("docs/images")
    width: int = 240
    height: int = 180


@dataclass(frozen=True)
class Drawn:
    """What the pictures show."""

    camera: Camera
    frames: list[Frame]
    poses: NDArray[np.float64]
    # The map after each of the stages.
    maps: list[SphereState]
    low_pass: float
    # Events of the trace.
    spans: list[dict[str, Any]]

    def view(self, spheres: SphereState, pose: NDArray[np.float64]) -> Image:
        """Return what a map looks like from a pose."""
        return MapRenderer(spheres, self.low_pass).render(pose, self.camera).colour


def run_room(size: tuple[int, int]) -> Drawn:
    """Run SLAM over the room."""
    dataset = open_dataset("synthetic/room", resolution=size, max_frames=_STAGES[-1])
    config, trace = load_preset("synthetic"), Trace(enabled=True)
    frames, maps = list(dataset), []
    with Slam(config, dataset.camera, trace=trace) as slam:
        for frame in frames:
            slam.track(frame)
            if frame.index + 1 in _STAGES:
                maps.append(slam.map.state())
        poses = slam.finish().T_world_camera
    with tempfile.TemporaryDirectory() as folder:
        trace.write(Path(folder) / "trace.json")
        events = json.loads((Path(folder) / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    return Drawn(dataset.camera, frames, poses, maps, config.map.low_pass, spans)


def spheres_picture(drawn: Drawn) -> list[tuple[str, Image]]:
    """Return an image, the spheres that explain it made small, and as they are."""
    spheres, pose = drawn.maps[-1], drawn.poses[-1]
    small = replace(spheres, log_radius=spheres.log_radius + np.float32(np.log(_SMALL)))
    return [
        ("the camera's image", _unit(drawn.frames[-1])),
        (f"{len(spheres):,} spheres, at a third of their radius", drawn.view(small, pose)),
        ("the same spheres, rendered", drawn.view(spheres, pose)),
    ]


def tracking_picture(drawn: Drawn) -> list[tuple[str, Image]]:
    """Return an image and how it differs from the map before and after tracking."""
    image, spheres = _unit(drawn.frames[-1]), drawn.maps[-1]
    before = drawn.view(spheres, drawn.poses[-1 - _FRAMES_BACK])
    after = drawn.view(spheres, drawn.poses[-1])
    return [
        ("the new image", image),
        ("its difference from the map, at an old pose", _difference(image, before)),
        ("and at the pose that tracking found", _difference(image, after)),
    ]


def growing_picture(drawn: Drawn) -> list[tuple[str, Image]]:
    """Return the map after each stage, all from one pose behind the middle of the run."""
    behind = np.eye(4)
    behind[2, 3] = -0.8
    pose = drawn.poses[len(drawn.poses) // 2] @ behind
    return [
        (
            f"after {count} frame{'s' * (count > 1)}: {len(spheres):,} spheres",
            drawn.view(spheres, pose),
        )
        for count, spheres in zip(_STAGES, drawn.maps, strict=True)
    ]


def draw_row(path: Path, panels: Sequence[tuple[str, Image]]) -> None:
    """Write images side by side, each with its title, as a JPEG file."""
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    for axes, (title, image) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        axes.imshow(np.clip(image, 0, 1), interpolation="lanczos")
        axes.set_title(title, fontsize=9)
        axes.set_axis_off()
    with tempfile.TemporaryDirectory() as folder:
        save_png(figure, Path(folder) / "row.png")
        pixels = cv2.imread(str(Path(folder) / "row.png"))
    assert pixels is not None
    cv2.imwrite(str(path), pixels, [cv2.IMWRITE_JPEG_QUALITY, 85])


def draw_threads(path: Path, spans: list[dict[str, Any]], frames: tuple[int, int]) -> None:
    """Draw what the two threads did while the frames from ``frames`` were tracked."""
    first, last = frames
    chosen = [s for s in spans if s["name"] == "tracking" and first <= s["args"]["frame"] < last]
    begin, end = chosen[0]["ts"], chosen[-1]["ts"] + chosen[-1]["dur"]
    figure = Figure(figsize=(10, 1.9), layout="constrained")
    axes = figure.subplots()
    for name, colour in _SPAN_COLOURS.items():
        bars = [(s["ts"] - begin, s["dur"]) for s in spans if s["name"] == name]
        milliseconds = [(start / 1000, length / 1000) for start, length in bars]
        row = 0.0 if name == "mapping" else 1.0
        axes.broken_barh(milliseconds, (row, 0.8), color=colour, edgecolor="white", label=name)
    for span in chosen:
        middle = (span["ts"] - begin + span["dur"] / 2) / 1000
        axes.text(middle, 1.4, span["args"]["frame"], ha="center", va="center", color="white")
    axes.set_xlim(0, (end - begin) / 1000)
    axes.set_yticks([0.4, 1.4], ["mapping", "tracking"])
    axes.set_xlabel("milliseconds")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    save_png(figure, path)


def _unit(frame: Frame) -> Image:
    return (frame.rgb / 255).astype(np.float32)


def _difference(image: Image, view: Image) -> Image:
    """Return three times the absolute difference, black where there is none."""
    return np.asarray(3 * np.abs(image - view), dtype=np.float32)


def main() -> None:
    """Draw them all."""
    options = tyro.cli(Options, description=__doc__)
    drawn = run_room((options.width, options.height))
    options.out.mkdir(parents=True, exist_ok=True)
    draw_row(options.out / "spheres.jpg", spheres_picture(drawn))
    draw_row(options.out / "tracking.jpg", tracking_picture(drawn))
    draw_row(options.out / "growing_map.jpg", growing_picture(drawn))
    draw_threads(options.out / "threads.png", drawn.spans, (20, 32))


if __name__ == "__main__":
    main()
