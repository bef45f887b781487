"""Opening of datasets by name; a loader is imported only when its dataset is chosen."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from gsslam.datasets import catalogue
from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.errors import DatasetError

_FOLDER = "folder"


class _Loader(Protocol):
    """What a loader module offers."""

    def open_sequence(
        self, entry: catalogue.Entry, folder: Path, options: ReadOptions
    ) -> Dataset: ...


@dataclass(frozen=True)
class DatasetInfo:
    """What the catalogue knows of a sequence."""

    name: str
    title: str
    about: str
    homepage: str
    licence: str
    # Where it is downloaded from; empty where there is nothing to download.
    url: str
    # Where a download of it lies or would lie.
    folder: Path
    # Whether it can be opened without ``path`` right now.
    is_available: bool


def open_dataset(
    name: str,
    path: str | Path | None = None,
    *,
    resolution: tuple[int, int] | None = None,
    max_frames: int | None = None,
    stride: int = 1,
    seed: int = 0,
) -> Dataset:
    """Open the sequence ``name``: one of the catalogue, or ``folder`` for any folder of images.

    ``path`` is its folder; without it the download cache is used. ``resolution`` is (width, height)
    in pixels, ``max_frames`` counts after ``stride``, ``seed`` decides synthetic noise. Raises
    DatasetError, or ConfigError for an impossible option.
    """
    options = ReadOptions(resolution, max_frames, stride, seed)
    if name.partition("/")[0] == _FOLDER:
        return _open_folder(name, path, options)
    entry = catalogue.find(name)
    folder = Path(path).expanduser() if path is not None else entry.cache_folder()
    if entry.sequence.url and not folder.is_dir():
        if path is not None:
            raise DatasetError(f"{name}: the folder {folder} does not exist")
        raise DatasetError(
            f"{name} is not on this computer; run `gsslam datasets download {name}`, "
            "or pass its folder with --path"
        )
    loader = cast(_Loader, importlib.import_module(f"gsslam.datasets.{entry.family.loader}"))
    return loader.open_sequence(entry, folder, options)


def _open_folder(name: str, path: str | Path | None, options: ReadOptions) -> Dataset:
    """Open ``folder`` with a path, or ``folder/PATH``."""
    place = path if path is not None else name.partition("/")[2]
    folder = Path(place).expanduser()
    if not place or not folder.is_dir():
        where = f"the folder {folder} does not exist" if place else "pass its folder with --path"
        raise DatasetError(f"{name}: {where}")
    from gsslam.datasets.folder import open_folder

    return open_folder(f"{_FOLDER}/{folder.resolve().name}", folder, options)


def list_datasets() -> list[DatasetInfo]:
    """Return what the catalogue knows of every sequence."""
    return [_info(entry) for entry in catalogue.entries()]


def describe(name: str) -> DatasetInfo:
    """Return what the catalogue knows of ``name``; raises DatasetError where it is unknown."""
    return _info(catalogue.find(name))


def _info(entry: catalogue.Entry) -> DatasetInfo:
    folder = entry.cache_folder()
    return DatasetInfo(
        name=entry.name,
        title=entry.family.title,
        about=entry.sequence.about,
        homepage=entry.family.homepage,
        licence=entry.family.licence,
        url=entry.sequence.url or "",
        folder=folder,
        is_available=entry.sequence.url is None or folder.is_dir(),
    )
