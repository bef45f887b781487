"""A run as COLMAP's text model with its images, for programs that begin with one.

https://colmap.github.io/format.html: sparse/0/cameras.txt, images.txt, points3D.txt, and images/.
Poses are world to camera; the centre of the first pixel lies at (0.5, 0.5), as here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.base import Dataset
from gsslam.evaluation.records import FrameRecord
from gsslam.export.surfaces import OnView
from gsslam.files import atomic_folder
from gsslam.geometry import inverse, quaternion_from_matrix
from gsslam.movie import write_png
from gsslam.results import SphereState

_NO_TRACK = "0"


def write_colmap(
    path: Path,
    state: SphereState,
    dataset: Dataset,
    views: Sequence[tuple[FrameRecord, NDArray[np.float64]]],
    on_view: OnView = lambda done, total: None,
) -> int:
    """Write ``views`` (frames, poses) and the spheres' centres into the new folder ``path``.

    Images are undistorted, as SLAM saw them. Returns the number of images. Raises DatasetError
    where a frame cannot be read, OutputError.
    """
    with atomic_folder(path) as folder:
        images, model = folder / "images", folder / "sparse" / "0"
        images.mkdir()
        model.mkdir(parents=True)
        (model / "cameras.txt").write_text(_camera_line(dataset.camera), encoding="ascii")
        lines = []
        for number, (record, pose) in enumerate(views, start=1):
            name = f"{record.index:06d}.png"
            write_png(images / name, dataset[record.index].rgb)
            lines.append(_image_lines(number, pose, name))
            on_view(number, len(views))
        (model / "images.txt").write_text("".join(lines), encoding="ascii")
        (model / "points3D.txt").write_text(_point_lines(state), encoding="ascii")
    return len(views)


def _camera_line(camera: Camera) -> str:
    values = " ".join(f"{v:.9g}" for v in (camera.fx, camera.fy, camera.cx, camera.cy))
    return (
        f"# id model width height fx fy cx cy\n1 PINHOLE {camera.width} {camera.height} {values}\n"
    )


def _image_lines(number: int, T_world_camera: NDArray[np.float64], name: str) -> str:
    """Return the image's line, and the empty one of its points."""
    T = inverse(T_world_camera)
    x, y, z, w = quaternion_from_matrix(T[:3, :3])
    values = " ".join(f"{value:.12g}" for value in (w, x, y, z, *T[:3, 3]))
    return f"{number} {values} 1 {name}\n\n"


def _point_lines(state: SphereState) -> str:
    pixels = np.rint(255 * np.clip(state.rgb, 0, 1)).astype(int)
    return "".join(
        f"{number} {x:.6f} {y:.6f} {z:.6f} {r} {g} {b} {_NO_TRACK}\n"
        for number, ((x, y, z), (r, g, b)) in enumerate(
            zip(state.xyz.tolist(), pixels.tolist(), strict=True), start=1
        )
    )
