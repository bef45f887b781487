"""Download of catalogue sequences from their publishers' own sites."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path

from gsslam.datasets import catalogue
from gsslam.datasets.archive import unpack
from gsslam.errors import DatasetError

# Called with the bytes received so far and the bytes in all (None where the server does not say).
Progress = Callable[[int, int | None], None]

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30.0
# Interrupted transfers are resumed this often before giving up.
_ATTEMPTS = 5


def download_dataset(name: str, on_progress: Progress | None = None) -> Path:
    """Download and unpack the sequence ``name`` into the cache; return its folder.

    What is there already is kept; an interrupted download goes on where it stopped. Raises
    DatasetError where the name is unknown, there is nothing to download, or it fails.
    """
    entry = catalogue.find(name)
    folder, url = entry.cache_folder(), entry.url
    if url is None:
        raise DatasetError(f"{name} needs no download: it is computed")
    if folder.is_dir():
        return folder
    # An archive of all sequences becomes the folder above.
    target = folder if entry.sequence.url else folder.parent
    if target.exists():
        raise DatasetError(f"{target} has no {folder.name}: remove it to download all of it again")
    archive = target.with_name(f"{target.name}.part")
    truth = target.with_name(f"{target.name}.truth.part")
    try:
        if entry.sequence.truth_url:
            fetch(entry.sequence.truth_url, truth)
        fetch(url, archive, on_progress)
    except DatasetError as error:
        raise DatasetError(
            f"{error}; where there is no network, fetch it elsewhere and unpack it as {target}"
        ) from error
    try:
        if entry.sequence.sha256:
            check_sha256(archive, entry.sequence.sha256)
        unpack(archive, target)
        if entry.sequence.truth_url:
            truth.replace(folder / entry.sequence.truth_url.rpartition("/")[2])
    finally:
        # A damaged archive must not be resumed, a good one is not needed any more.
        archive.unlink(missing_ok=True)
        truth.unlink(missing_ok=True)
    if not folder.is_dir():
        raise DatasetError(f"the archive of {name} has no folder {folder.name}: see {target}")
    return folder


def fetch(url: str, path: Path, on_progress: Progress | None = None) -> None:
    """Download ``url`` to ``path``, continuing what ``path`` has already; checks the size.

    Raises DatasetError where it fails; what was received so far is kept for the next try.
    """
    problem = "the connection was closed early"
    for _ in range(_ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if _fetch_rest(url, path, on_progress):
                return
        except urllib.error.HTTPError as error:
            raise DatasetError(
                f"cannot download {url}: HTTP {error.code} {error.reason}"
            ) from error
        except urllib.error.URLError as error:
            raise DatasetError(f"cannot download {url}: {error.reason}") from error
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
        except OSError as error:
            raise DatasetError(f"cannot download {url} to {path}: {error}") from error
    raise DatasetError(f"cannot download {url}: {problem}; run it again to resume")


def check_sha256(path: Path, expected: str) -> None:
    """Raise DatasetError where the SHA-256 of ``path`` is not ``expected`` (hexadecimal)."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != expected.lower():
        raise DatasetError(
            f"{path} has a wrong SHA-256: the file changed or was damaged on its way"
        )


def _fetch_rest(url: str, path: Path, on_progress: Progress | None) -> bool:
    """Receive what ``path`` still lacks; return whether it is complete."""
    have = path.stat().st_size if path.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        # Nothing lies past what is there: it is complete, or belongs to another version.
        if _total_bytes(error.headers, 0) == have:
            return True
        path.unlink()
        return False
    with response:
        is_rest = response.status == http.client.PARTIAL_CONTENT
        if is_rest and f" {have}-" not in (response.headers.get("Content-Range") or ""):
            raise http.client.HTTPException("the server sent another part than asked for")
        received = have if is_rest else 0
        total = _total_bytes(response.headers, received)
        with path.open("ab" if is_rest else "wb") as file:
            while chunk := response.read(_CHUNK_BYTES):
                file.write(chunk)
                received += len(chunk)
                if on_progress is not None:
                    on_progress(received, total)
    return total is None or received == total


def _total_bytes(headers: Message, already: int) -> int | None:
    """Return the size of the whole file that a response belongs to."""
    whole = (headers.get("Content-Range") or "").rpartition("/")[2]
    if whole.isdigit():
        return int(whole)
    length = headers.get("Content-Length")
    return already + int(length) if length is not None else None
