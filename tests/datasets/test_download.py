import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from gsslam.datasets import catalogue
from gsslam.datasets.download import download_dataset, fetch
from gsslam.errors import DatasetError
from tests.datasets.archives import names, tar_bytes, zip_bytes


class FileServer(ThreadingHTTPServer):
    """Serves ``content`` under every path, with ranges; may break off connections."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.honours_ranges = True
        # Bytes sent before the connection breaks, one entry a request; empty: never.
        self.breaks: list[int] = []
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/data.tgz"


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        content, wanted = self.server.content, self.headers.get("Range")
        self.server.ranges.append(wanted)
        if self.path.endswith("absent"):
            self.send_error(404)
            return
        start = 0
        if wanted and self.server.honours_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        length = self.server.breaks.pop(0) if self.server.breaks else len(content)
        self.wfile.write(content[start : start + length])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


NOISE = np.random.default_rng(0).bytes(3_000_000)
GOOD = {"rgbd_dataset/rgb.txt": b"1.0 rgb/1.png", "rgbd_dataset/rgb/1.png": NOISE}


@pytest.fixture
def offer(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Let ``tum/fr1_xyz`` be the given archive on the local server; return the cache folder."""

    def prepare(content: bytes, sha256: str | None = None) -> Path:
        server.content = content
        sequence = catalogue.SequenceEntry(about="", camera="fr1", url=server.url, sha256=sha256)
        monkeypatch.setitem(catalogue.families()["tum"].sequences, "fr1_xyz", sequence)
        monkeypatch.setenv("GSSLAM_DATA_HOME", str(tmp_path / "cache"))
        return tmp_path / "cache" / "tum"

    return prepare


def test_download_unpacks_into_the_cache(server: FileServer, offer: Callable[..., Path]) -> None:
    content = tar_bytes(GOOD)
    cache = offer(content, hashlib.sha256(content).hexdigest())
    progress: list[tuple[int, int | None]] = []
    folder = download_dataset("tum/fr1_xyz", lambda done, total: progress.append((done, total)))
    assert folder == cache / "fr1_xyz"
    assert (folder / "rgb" / "1.png").read_bytes() == NOISE
    assert (folder / "rgb.txt").read_bytes() == b"1.0 rgb/1.png"
    assert names(cache) == ["fr1_xyz"]  # neither archive nor temporary folder stays
    assert progress[-1] == (len(content), len(content))
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert download_dataset("tum/fr1_xyz") == folder
    assert len(server.ranges) == 1  # what is there is not fetched again


def test_broken_connections_are_resumed(server: FileServer, offer: Callable[..., Path]) -> None:
    cache = offer(tar_bytes(GOOD))
    server.breaks = [1_000_000, 500_000]
    folder = download_dataset("tum/fr1_xyz")
    assert server.ranges == [None, "bytes=1000000-", "bytes=1500000-"]
    assert (folder / "rgb" / "1.png").read_bytes() == NOISE
    assert names(cache) == ["fr1_xyz"]


def test_a_later_run_goes_on_where_one_stopped(
    server: FileServer, offer: Callable[..., Path]
) -> None:
    cache = offer(tar_bytes(GOOD))
    server.breaks = [400_000, *[0] * 4]
    with pytest.raises(DatasetError, match="run it again to resume") as error:
        download_dataset("tum/fr1_xyz")
    assert "\n" not in str(error.value)
    assert str(cache / "fr1_xyz") in str(error.value)
    assert names(cache) == ["fr1_xyz.part"]
    server.ranges.clear()
    folder = download_dataset("tum/fr1_xyz")
    assert server.ranges == ["bytes=400000-"]
    assert (folder / "rgb" / "1.png").read_bytes() == NOISE


def test_server_without_ranges_starts_over(server: FileServer, tmp_path: Path) -> None:
    server.content, server.honours_ranges = NOISE, False
    (tmp_path / "f").write_bytes(b"something else")
    fetch(server.url, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == NOISE


def test_complete_and_overlong_parts(server: FileServer, tmp_path: Path) -> None:
    server.content = NOISE
    (tmp_path / "f").write_bytes(NOISE)
    fetch(server.url, tmp_path / "f")
    assert server.ranges == [f"bytes={len(NOISE)}-"]
    (tmp_path / "f").write_bytes(NOISE + b"more")
    fetch(server.url, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == NOISE


def test_wrong_checksum_is_refused(offer: Callable[..., Path]) -> None:
    cache = offer(tar_bytes(GOOD), "0" * 64)
    with pytest.raises(DatasetError, match="wrong SHA-256"):
        download_dataset("tum/fr1_xyz")
    assert names(cache) == []


def test_no_network_is_one_line_with_url_and_place(
    server: FileServer, offer: Callable[..., Path], tmp_path: Path
) -> None:
    cache = offer(b"")
    server.shutdown()
    server.server_close()
    with pytest.raises(DatasetError) as error:
        download_dataset("tum/fr1_xyz")
    message = str(error.value)
    assert server.url in message
    assert f"unpack it as {cache / 'fr1_xyz'}" in message
    assert "\n" not in message


def test_missing_file_on_the_server(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="HTTP 404"):
        fetch(server.url + "/absent", tmp_path / "f")


def test_synthetic_needs_no_download() -> None:
    with pytest.raises(DatasetError, match="needs no download"):
        download_dataset("synthetic/room")


def test_truncated_archive_from_the_server_is_not_kept(offer: Callable[..., Path]) -> None:
    cache = offer(tar_bytes(GOOD)[:-1000])
    with pytest.raises(DatasetError, match="truncated or damaged"):
        download_dataset("tum/fr1_xyz")
    assert names(cache) == []


def test_archive_of_a_whole_family(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = replace(catalogue.families()["replica"], url=server.url)
    monkeypatch.setitem(catalogue.families(), "replica", family)
    monkeypatch.setenv("GSSLAM_DATA_HOME", str(tmp_path / "cache"))
    server.content = zip_bytes({"Replica/room0/traj.txt": b"a", "Replica/office1/traj.txt": b"b"})
    folder = download_dataset("replica/room0")
    assert folder == tmp_path / "cache" / "replica" / "room0"
    assert (folder / "traj.txt").read_bytes() == b"a"
    assert download_dataset("replica/office1").is_dir()
    assert len(server.ranges) == 1
    with pytest.raises(DatasetError, match=r"replica has no room1: remove it"):
        download_dataset("replica/room1")


def test_ground_truth_of_its_own_comes_along(
    server: FileServer, offer: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = offer(tar_bytes(GOOD))
    sequences = catalogue.families()["tum"].sequences
    truth_url = f"{server.url}/room.gt.freiburg"
    sequence = replace(sequences["fr1_xyz"], truth_url=truth_url)
    monkeypatch.setitem(sequences, "fr1_xyz", sequence)
    folder = download_dataset("tum/fr1_xyz")
    assert (folder / "room.gt.freiburg").exists()
    assert names(cache) == ["fr1_xyz"]
    assert len(server.ranges) == 2
