"""Unpacking of downloaded archives that may be damaged or hostile."""

from __future__ import annotations

import gzip
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from gsslam.errors import DatasetError

_CHUNK_BYTES = 1 << 20
# What the standard library raises on archives that end early or are no archives.
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip archive as the new folder ``target``, which appears whole or not at all.

    A single folder that holds everything becomes ``target`` itself; archives inside (7-Scenes has
    one a sequence) are unpacked in place. Raises DatasetError where the archive is damaged, holds
    anything but plain files and folders inside the target, or where the disk refuses.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as temporary:
            content = Path(temporary) / "content"
            _unpack_into(archive, content)
            for inner in sorted(content.rglob("*.zip")):
                _unpack_into(inner, inner.parent)
                inner.unlink()
            children = list(content.iterdir())
            only_folder = len(children) == 1 and children[0].is_dir()
            (children[0] if only_folder else content).rename(target)
    except _DAMAGE as error:
        raise DatasetError(
            f"{archive} is truncated or damaged ({error}); download it again"
        ) from error
    except OSError as error:
        raise DatasetError(f"cannot unpack {archive} to {target}: {error}") from error


def _unpack_into(archive: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            _unpack_zip(file, folder)
    else:
        with tarfile.open(archive) as file:
            _unpack_tar(file, folder)


def _unpack_zip(file: zipfile.ZipFile, folder: Path) -> None:
    for member in file.infolist():
        place = _inside(folder, member.filename)
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DatasetError(f"refusing archive: {member.filename!r} is a link or a device")
        if member.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with file.open(member) as source, place.open("wb") as sink:
            shutil.copyfileobj(source, sink)


def _unpack_tar(file: tarfile.TarFile, folder: Path) -> None:
    """Write the content of plain files only; owners, modes and times in the archive are ignored."""
    for member in file:
        place = _inside(folder, member.name)
        if member.isdir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        source = file.extractfile(member) if member.isreg() else None
        if source is None:
            raise DatasetError(f"refusing archive: {member.name!r} is a link or a device")
        place.parent.mkdir(parents=True, exist_ok=True)
        with source, place.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    # Compressed streams are checked at their very end, which lies behind the last member.
    while file.fileobj is not None and file.fileobj.read(_CHUNK_BYTES):
        pass


def _inside(folder: Path, name: str) -> Path:
    """Return where ``name`` goes below ``folder``; raises DatasetError where it leaves it."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
        raise DatasetError(f"refusing archive: {name!r} lies outside the target folder")
    return folder / path
