"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gsslam.errors import OutputError

# What the temporary names of ``atomic_path`` look like.
TEMPORARY_PATTERN = ".*.tmp*"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is renamed to ``path``, else removed.

    Raises OutputError where the file cannot be written.
    """
    # The suffix is kept last: image and plot writers choose their format by it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path``; on success it becomes ``path``, else it is removed.

    Raises OutputError where ``path`` exists and is not an empty folder, or the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise OutputError(f"{path} exists already: choose a new folder, or remove it")
        temporary.mkdir(parents=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
