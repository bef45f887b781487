"""The frames that a report shows: read again, rendered, and encoded into text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize, to_hex
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.base import Dataset
from gsslam.evaluation.evaluate import Sample, evenly_spaced
from gsslam.finished_run import FinishedRun
from gsslam.frame import Frame
from gsslam.rendering import MapRenderer
from gsslam.report.frames_plot import (
    DEPTH_COLOURS,
    ERROR_COLOURS,
    ERROR_RANGE,
    PANEL_TITLES,
    caption,
    depth_range,
    panels,
)

# Wider images are made smaller: the report is for looking, the numbers come from all pixels.
_MOST_WIDTH = 480
_WEBP_QUALITY = 80
# The range of depth is that of this many frames.
_RANGE_FRAMES = 6
# What can be shown without the dataset.
_RENDERED_PANELS = ("render", "rendered depth")


@dataclass(frozen=True)
class Slide:
    """One frame of one run."""

    frame: int
    # Since the first frame of the run.
    seconds: float
    caption: str
    # (title, data URI).
    images: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Legend:
    """A colour scale: its ends, and colours from one to the other."""

    label: str
    low: str
    high: str
    colours: Sequence[str]


@dataclass(frozen=True)
class Slides:
    """The frames of one run, and what their colours mean."""

    slides: Sequence[Slide]
    legends: Sequence[Legend]


def make_slides(
    run: FinishedRun,
    dataset: Dataset | None,
    renderer: MapRenderer,
    count: int,
    on_frame: Callable[[int, int], None] = lambda done, total: None,
) -> Slides:
    """Return ``count`` frames of the run, evenly spaced in its order.

    Without ``dataset`` only what the map shows. Raises DatasetError where a frame or the camera
    cannot be read.
    """
    camera = run.camera() if dataset is None else dataset.camera

    def sample(position: int) -> Sample:
        record = run.seen[position]
        view = renderer.render(run.trajectory.T_world_camera[position], camera)
        frame = _blank(camera) if dataset is None else dataset[record.index]
        return Sample(frame, view, record)

    first = [sample(position) for position in evenly_spaced(len(run.seen), _RANGE_FRAMES)]
    scale = depth_range([s.view.depth if dataset is None else s.frame.depth for s in first])
    titles = _RENDERED_PANELS if dataset is None else PANEL_TITLES
    times = run.trajectory.timestamps
    positions = sorted(evenly_spaced(len(run.seen), count))
    slides = []
    for done, position in enumerate(positions, start=1):
        seconds = float(times[position] - times[0])
        slides.append(_slide(sample(position), seconds, scale, titles))
        on_frame(done, len(positions))
    low, high = f"{scale.vmin:.2f} m", f"{scale.vmax:.2f} m"
    legends = [_legend("depth; grey: none", low, high, DEPTH_COLOURS)]
    if dataset is not None:
        legends.append(_legend("mean absolute colour error", "0", f"{ERROR_RANGE}", ERROR_COLOURS))
    return Slides(slides, legends)


def _slide(sample: Sample, seconds: float, scale: Normalize, titles: Sequence[str]) -> Slide:
    images = zip(PANEL_TITLES, panels(sample, scale), strict=True)
    return Slide(
        frame=sample.record.index,
        seconds=seconds,
        caption=f"{caption(sample.record, ', ')}, {seconds:.2f} s",
        images=[(title, _data_uri(image)) for title, image in images if title in titles],
    )


def _blank(camera: Camera) -> Frame:
    """Return what stands for an image that is not at hand."""
    shape = (camera.height, camera.width)
    return Frame(0, 0.0, np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.float32), camera)


def _legend(label: str, low: str, high: str, colours: str) -> Legend:
    return Legend(label, low, high, [to_hex(colormaps[colours](x)) for x in np.linspace(0, 1, 12)])


def _data_uri(image: NDArray[Any]) -> str:
    """Return an image (H, W, 3), 0 to 1, as the text of a small WebP file."""
    height, width = image.shape[:2]
    pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    if width > _MOST_WIDTH:
        size = (_MOST_WIDTH, max(1, round(height * _MOST_WIDTH / width)))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    bgr = np.ascontiguousarray(pixels[..., ::-1])
    _, data = cv2.imencode(".webp", bgr, [cv2.IMWRITE_WEBP_QUALITY, _WEBP_QUALITY])
    return "data:image/webp;base64," + base64.b64encode(data.tobytes()).decode("ascii")
