"""A question to the map of a run: where else is what this pixel or this picture shows?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from gsslam.errors import ConfigError, DatasetError
from gsslam.export.ply import write_ply
from gsslam.features.files import read_features
from gsslam.features.map_features import MapFeatures
from gsslam.files import atomic_path
from gsslam.rendering import render_view
from gsslam.run_folder import RunFolder
from gsslam.trajectory import Trajectory

# Likeness under which a picture stays as it is.
_FLOOR = 0.2
# Pictures in a row of the overview.
_COLUMNS = 3
# Share of the colour where something is as alike as can be.
_STRENGTH = 0.85

Pose = NDArray[np.float64]


@dataclass(frozen=True)
class QueryResult:
    """What an answer consists of."""

    folder: Path
    # The most alike that a pixel of each picture is, by the frame.
    best: dict[int, float]
    # One PNG each, in the same order; all of them in one; the spheres coloured by likeness.
    pictures: tuple[Path, ...]
    overview: Path
    spheres: Path


def query_pixel(
    run: Path, frame: int, pixel: tuple[int, int], *, views: int = 6, out: Path | None = None
) -> QueryResult:
    """Look for what a run's map shows at a pixel (column, row) of frame ``frame``.

    Writes pictures of ``views`` frames evenly over the run, and of that frame. Raises ConfigError
    for a frame or a pixel that is not there, or a run without features.
    """
    folder = RunFolder(run)
    features, poses = read_features(folder), poses_of(folder)
    if frame not in poses:
        last = max(poses)
        raise ConfigError(f"the run has no pose of frame {frame}: its frames are 0 to {last}")
    feature = features.feature_at(poses[frame], pixel)
    out = out or run / "query" / f"frame-{frame:06d}-{pixel[0]}-{pixel[1]}"
    chosen = [frame, *(i for i in _spread(list(poses), views) if i != frame)]
    return _answer(features, feature, {i: poses[i] for i in chosen}, out, mark=pixel)


def query_crop(run: Path, crop: Path, *, views: int = 6, out: Path | None = None) -> QueryResult:
    """Look for what a picture shows; the rest as ``query_pixel``."""
    folder = RunFolder(run)
    features, poses = read_features(folder), poses_of(folder)
    feature = features.feature_of(read_image(crop))
    chosen = _spread(list(poses), views)
    out = out or run / "query" / crop.stem
    return _answer(features, feature, {i: poses[i] for i in chosen}, out)


def read_image(path: Path) -> torch.Tensor:
    """Return a picture (3, H, W), 0 to 1; raises ConfigError where it cannot be read."""
    image = cv2.imread(str(path), cv2.IMREAD_COLOR) if path.is_file() else None
    if image is None:
        raise ConfigError(f"cannot read a picture from {path}")
    return torch.from_numpy(np.ascontiguousarray(image[:, :, ::-1])).permute(2, 0, 1) / 255


def heat_colours(picture: NDArray[np.float32], heat: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return colours (..., 3), 0 to 1, over which likeness (...) is laid, −1 to 1."""
    share = np.clip((heat - _FLOOR) / (1 - _FLOOR), 0, 1)
    levels = np.round(255 * share).astype(np.uint8).reshape(-1, 1)
    bgr = cv2.applyColorMap(levels, cv2.COLORMAP_TURBO)
    colours = bgr[..., ::-1].reshape(*heat.shape, 3).astype(np.float32) / 255
    weight = (_STRENGTH * share**0.5)[..., None]
    grey = picture.mean(-1, keepdims=True)
    blended: NDArray[np.float32] = (1 - weight) * (picture + grey) / 2 + weight * colours
    return blended


def _answer(
    features: MapFeatures,
    feature: torch.Tensor,
    views: dict[int, Pose],
    out: Path,
    mark: tuple[int, int] | None = None,
) -> QueryResult:
    """Draw the views; ``mark`` is the pixel of the first one."""
    pictures: dict[Path, NDArray[np.uint8]] = {}
    best: dict[int, float] = {}
    for frame, pose in views.items():
        heat = features.heat(feature, pose).cpu().numpy()
        picture = _draw(features, pose, heat)
        if mark is not None and not pictures:
            cv2.circle(picture, mark, max(features.camera.width // 60, 3), (255, 255, 255), 2)
        pictures[out / f"frame-{frame:06d}.png"] = picture
        best[frame] = float(heat.max())
    overview = out / "overview.png"
    for path, picture in {**pictures, overview: _side_by_side(list(pictures.values()))}.items():
        with atomic_path(path) as temporary:
            if not cv2.imwrite(str(temporary), picture):
                raise OSError(f"no picture written to {temporary}")
    spheres = out / "likeness.ply"
    state = features.map.state()
    scores = features.scores(feature).cpu().numpy()
    write_ply(replace(state, rgb=heat_colours(state.rgb, scores)), spheres)
    return QueryResult(out, best, tuple(pictures), overview, spheres)


def _draw(features: MapFeatures, pose: Pose, heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the map's view with the likeness over it, as OpenCV has colours."""
    spheres = features.map
    view = render_view(spheres.parameters, spheres.count, features.camera, pose, features.low_pass)
    colours = heat_colours(view.colour.clip(0, 1), heat)
    return np.ascontiguousarray((255 * colours[..., ::-1]).round().astype(np.uint8))


def _side_by_side(pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return pictures of one size in rows of ``_COLUMNS``, the last one filled up with black."""
    columns = min(_COLUMNS, len(pictures))
    padded = [*pictures, *[np.zeros_like(pictures[0])] * (-len(pictures) % columns)]
    return np.vstack([np.hstack(padded[i : i + columns]) for i in range(0, len(padded), columns)])


def poses_of(folder: RunFolder) -> dict[int, Pose]:
    """Return T_world_camera of the frames that were seen, by their index."""
    seen = [record.index for record in folder.read_frames() if record.seen]
    poses = Trajectory.read(folder.trajectory).T_world_camera
    if len(seen) != len(poses) or not seen:
        raise DatasetError(f"{folder.trajectory} has {len(poses)} poses for {len(seen)} frames")
    return dict(zip(seen, poses, strict=True))


def _spread(frames: Sequence[int], count: int) -> list[int]:
    """Return so many of the frames, evenly spread."""
    if count < 1:
        raise ConfigError(f"--views {count} must be at least 1")
    places = np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)
    return [frames[place] for place in places]
