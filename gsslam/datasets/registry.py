"""Opening of datasets by name; a loader is imported only when its dataset is chosen."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from gsslam.datasets import catalogue
from gsslam.datasets.base import Dataset, ReadOptions
from gsslam.datasets.detect import detect_format
from gsslam.errors import DatasetError

# A name with one of these is taken for a file's.
_FILE_SUFFIXES = (".bag", ".mcap", ".db3", ".r3d")


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
    # The recordings that it consists of, if several.
    recordings: tuple[str, ...]
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
    """Open a sequence of the catalogue, or any recording in a known format.

    ``name`` is a sequence of the catalogue, such as ``tum/fr1_xyz``; or a format, such as
    ``folder`` or ``bag``, with a ``path``; or the path of a recording itself. ``path`` is the
    recording's file or folder; without it the download cache is used. ``resolution`` is (width,
    height) in pixels, ``max_frames`` counts after ``stride``, ``seed`` decides synthetic noise.
    Raises DatasetError, or ConfigError for an impossible option.
    """
    options = ReadOptions(resolution, max_frames, stride, seed)
    entry, place = locate(name, path)
    loader = cast(_Loader, importlib.import_module(f"gsslam.datasets.{entry.family.loader}"))
    return loader.open_sequence(entry, place, options)


def locate(
    name: str, path: str | Path | None = None, data_root: str | Path | None = None
) -> tuple[catalogue.Entry, Path]:
    """Return the sequence that ``name`` and ``path`` of ``open_dataset`` mean, and where it lies.

    ``data_root`` is a folder below which many datasets lie. Raises DatasetError where there is no
    such dataset, or where it should be.
    """
    place = Path(path).expanduser() if path is not None else None
    entry, place = _entry(name, place)
    if entry.family.is_computed:
        return entry, place or entry.cache_folder()
    if place is None and data_root is not None:
        place = _below(entry, Path(data_root).expanduser())
    if place is None:
        place = entry.cache_folder()
        if not place.is_dir():
            raise DatasetError(_how_to_get(entry))
    if not place.exists():
        what = "file or folder" if place.suffix else "folder"
        raise DatasetError(f"{name}: the {what} {place} does not exist")
    return entry, place


def resolve(
    name: str, path: Path | None = None, data_root: Path | None = None
) -> tuple[str, Path | None]:
    """Return name and path that mean the same from any folder, for ``open_dataset``.

    The path is None where the catalogue knows it: a computed sequence, or one in the cache. Raises
    DatasetError as ``locate`` does.
    """
    entry, place = locate(name, path, data_root)
    is_known = path is None and (entry.family.is_computed or place == entry.cache_folder())
    return entry.name, None if is_known else place


def family_of(name: str) -> str:
    """Return the family or format of what ``name`` names; ``name`` itself where that is nothing."""
    try:
        return _entry(name, None)[0].family_name
    except DatasetError:
        return name


def _entry(name: str, place: Path | None) -> tuple[catalogue.Entry, Path | None]:
    """Return what ``name`` means, and the place that it names if it is one."""
    if name.startswith("live/"):
        raise DatasetError(
            f"{name} is a live camera: `gsslam run` and `gsslam datasets record` take it; other "
            "commands take the recording that these leave"
        )
    format_name, _, rest = name.partition("/")
    family = catalogue.formats().get(format_name)
    if family is None or rest.partition("/")[0] in family.sequences | family.aliases:
        return _listed_or_path(name, place)
    if place is not None:
        return catalogue.recording_of(format_name, place, rest), place
    if not rest:
        raise DatasetError(f"{name}: pass its folder with --path; it has {family.layout}")
    if family.homepage and family.sequences:
        return _listed_or_path(name, place)
    place = Path(rest).expanduser()
    if family.homepage and not place.exists():
        return catalogue.recording_of(format_name, place), None
    return catalogue.recording_of(format_name, place), place


def _listed_or_path(name: str, place: Path | None) -> tuple[catalogue.Entry, Path | None]:
    """Return the sequence of the catalogue, else the recording whose path ``name`` is."""
    try:
        return catalogue.find(name), place
    except DatasetError:
        own = Path(name).expanduser()
        if place is None and own.exists():
            return catalogue.recording_of(detect_format(own), own), own
        if own.suffix in _FILE_SUFFIXES or name.startswith((".", "/", "~")):
            raise DatasetError(f"there is no file or folder {name}") from None
        raise


def _below(entry: catalogue.Entry, root: Path) -> Path:
    """Return where the sequence lies below ``root``; raises DatasetError where it is not there."""
    if not root.is_dir():
        raise DatasetError(f"the data root {root} does not exist")
    places = entry.folders_below(root)
    for place in places:
        if place.exists():
            return place
    looked = ", ".join(str(place.relative_to(root)) for place in places)
    raise DatasetError(f"{entry.name} is not below {root}: there is none of {looked}")


def _how_to_get(entry: catalogue.Entry) -> str:
    if entry.url is None:
        where = entry.family.homepage or "its publisher"
        return f"{entry.name} must be asked for at {where}; then pass its folder with --path"
    return (
        f"{entry.name} is not on this computer; run `gsslam datasets download {entry.name}`, "
        "or pass its folder with --path"
    )


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
        url=entry.url or "",
        recordings=entry.sequence.recordings,
        folder=folder,
        is_available=entry.family.is_computed or folder.is_dir(),
    )
