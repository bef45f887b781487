"""The map of a run seen along a path of one's own, as a film or as images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.camera_path import interpolated, orbit, smoothed
from gsslam.errors import ConfigError
from gsslam.finished_run import FinishedRun
from gsslam.movie import write_images, write_movie
from gsslam.rendering import MapRenderer
from gsslam.trajectory import Trajectory

_MOST_FRAMES = 100_000
_ORBIT_S = 8.0

OnFrame = Callable[[int, int], None]


@dataclass(frozen=True)
class NovelViewOptions:
    """How a path is filmed."""

    # Width and height in pixels; None takes the size of the run's images.
    resolution: tuple[int, int] | None = None
    fps: float = 30.0
    # Length of the film; None takes that of the path.
    seconds: float | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Refuse what makes no film."""
        if not 1 <= self.fps <= 240:
            raise ConfigError(f"--fps {self.fps:g} must be from 1 to 240")
        if self.seconds is not None and not 0 < self.seconds < np.inf:
            raise ConfigError(f"--seconds {self.seconds:g} must be positive")


def render_run(
    folder: Path,
    path: str,
    out: Path | None = None,
    options: NovelViewOptions | None = None,
    on_frame: OnFrame = lambda done, total: None,
) -> tuple[Path, int]:
    """Render the run folder along ``path``; return where the result lies, and its images' number.

    ``path`` is "orbit", "trajectory" or the name of a file of poses in TUM's format, in the run's
    world. ``out`` ends in .mp4, or names a new folder for PNG images. Raises DatasetError where the
    run or the file is unusable, ConfigError for options, OutputError.
    """
    options = options or NovelViewOptions()
    run = FinishedRun.read(folder)
    target = out or run.folder.exports / f"{Path(path).stem}.mp4"
    if target.suffix.lower() not in ("", ".mp4"):
        raise ConfigError(f"--out {target} must end in .mp4, or name a folder for PNG images")
    renderer = MapRenderer(run.spheres(), run.config.map.low_pass, options.device)
    camera = run.camera()
    poses = _poses(run, path, renderer, camera, options)
    camera = _framed(camera, options.resolution)
    images = _images(renderer, camera, poses, on_frame)
    if target.suffix:
        count = write_movie(target, images, (camera.width, camera.height), options.fps)
    else:
        count = write_images(target, images)
    return target, count


def _poses(
    run: FinishedRun, path: str, renderer: MapRenderer, camera: Camera, options: NovelViewOptions
) -> NDArray[np.float64]:
    """Return the poses (N, 4, 4) of the film's images."""
    if path == "orbit":
        count = _frame_count(options, _ORBIT_S)
        # One more, since the last of an orbit is its first again.
        return orbit(run.tracked(), renderer, camera, count + 1)[:-1]
    if path == "trajectory":
        tracked = run.tracked()
        return smoothed(tracked, _frame_count(options, np.ptp(tracked.timestamps)))
    if not Path(path).is_file():
        raise ConfigError(
            f"--path {path} is neither orbit nor trajectory, and there is no such file"
        )
    poses = Trajectory.read(Path(path))
    if len(poses) == 0:
        raise ConfigError(f"the camera path {path} has no poses")
    return interpolated(poses, _frame_count(options, np.ptp(poses.timestamps)))


def _frame_count(options: NovelViewOptions, path_seconds: float) -> int:
    seconds = path_seconds if options.seconds is None else options.seconds
    count = max(1, round(seconds * options.fps))
    if count > _MOST_FRAMES:
        raise ConfigError(
            f"{seconds:g} s at {options.fps:g} frames/s are {count:,} frames, more than "
            f"{_MOST_FRAMES:,}: choose fewer with --seconds"
        )
    return count


def _framed(camera: Camera, resolution: tuple[int, int] | None) -> Camera:
    """Return ``camera`` for images of ``resolution``, with the same vertical field of view."""
    if resolution is None:
        return camera
    width, height = resolution
    scale = height / camera.height
    cx = width / 2 + scale * (camera.cx - camera.width / 2)
    return Camera(width, height, scale * camera.fx, scale * camera.fy, cx, scale * camera.cy)


def _images(
    renderer: MapRenderer, camera: Camera, poses: NDArray[np.float64], on_frame: OnFrame
) -> Iterator[NDArray[np.uint8]]:
    for done, pose in enumerate(poses, start=1):
        colour = renderer.render(pose, camera).colour
        yield np.rint(255 * np.clip(colour, 0, 1)).astype(np.uint8)
        on_frame(done, len(poses))
