"""Telling the format of a recording by what lies there."""

from __future__ import annotations

from pathlib import Path

from gsslam.errors import DatasetError

# Format (a family of the catalogue), and patterns of files that must all be there.
_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bag", ("metadata.yaml", "*.db3*")),
    ("bag", ("metadata.yaml", "*.mcap*")),
    ("tum", ("rgb.txt", "depth.txt")),
    ("icl_nuim", ("associations.txt",)),
    ("record3d", ("metadata.json", "rgb", "depth")),
    ("replica", ("traj.txt", "results")),
    ("replica", ("traj_w_c.txt", "rgb", "depth")),
    ("scannet", ("color", "depth", "intrinsic")),
    ("7scenes", ("frame-*.depth.png",)),
    ("7scenes", ("seq-01",)),
    ("folder", ("rgb", "depth")),
    ("video", ("rgb.*", "depth")),
)
_SUFFIXES = {".bag": "bag", ".mcap": "bag", ".db3": "bag", ".r3d": "record3d"}
_ARCHIVES = {".zip", ".tgz", ".tar", ".gz", ".7z"}


def detect_format(place: Path) -> str:
    """Return the format of the file or folder ``place``; raises DatasetError where it is none."""
    if place.is_file():
        suffix = place.suffix.lower()
        if suffix in _SUFFIXES:
            return _SUFFIXES[suffix]
        if suffix in _ARCHIVES:
            raise DatasetError(f"{place} is an archive: unpack it, and pass the folder")
        raise DatasetError(
            f"{place} is no recording that gsslam knows (.bag, .mcap, .db3, .r3d); "
            "pass the folder that holds the images"
        )
    try:
        for name, patterns in _SIGNS:
            if all(any(place.glob(pattern)) for pattern in patterns):
                return name
    except OSError as error:
        raise DatasetError(f"cannot read {place}: {error.strerror or error}") from error
    raise DatasetError(
        f"{place} has the layout of no known format; docs/datasets.md shows them all, the simplest "
        "is rgb/, depth/ and camera.yaml"
    )
