import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gsslam.datasets.archive import unpack
from gsslam.errors import DatasetError
from tests.datasets.archives import names, tar_bytes, zip_bytes

NOISE = np.random.default_rng(0).bytes(500_000)


def special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("../evil.txt", b"x", "outside the target"),
        ("a/../../evil.txt", b"x", "outside the target"),
        ("/tmp/evil.txt", b"x", "outside the target"),
        ("a\\..\\..\\evil.txt", b"x", "outside the target"),
        ("C:/evil.txt", b"x", "outside the target"),
        ("link", special(tarfile.SYMTYPE, "/etc"), "link or a device"),
        ("hard", special(tarfile.LNKTYPE, "../../evil"), "link or a device"),
        ("device", special(tarfile.CHRTYPE), "link or a device"),
        ("pipe", special(tarfile.FIFOTYPE), "link or a device"),
    ],
)
def test_hostile_tar_is_refused(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / "a").write_bytes(tar_bytes({"good.txt": b"x", name: content}))
    with pytest.raises(DatasetError, match=what):
        unpack(tmp_path / "a", tmp_path / "deep" / "out")
    assert names(tmp_path / "deep") == []
    assert not list(tmp_path.rglob("*evil*"))


def test_hostile_zip_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    for member in (zipfile.ZipInfo("../evil.txt"), zipfile.ZipInfo("/evil.txt"), link):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
            file.writestr(member, b"/etc")
        with pytest.raises(DatasetError, match="refusing archive"):
            unpack(tmp_path / "a.zip", tmp_path / "out")
        assert names(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz", "w"])
@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.95])
def test_truncated_tar_is_refused(tmp_path: Path, mode: str, kept: float) -> None:
    content = tar_bytes({"rgb.txt": b"1.0 rgb/1.png", "rgb/1.png": NOISE[:500_000]}, mode)
    size = int(kept * len(content)) if kept < 1 else int(kept)
    (tmp_path / "a").write_bytes(content[:size])
    with pytest.raises(DatasetError, match="truncated or damaged"):
        unpack(tmp_path / "a", tmp_path / "out")
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_damaged_tar_is_refused(tmp_path: Path, mode: str) -> None:
    content = bytearray(tar_bytes({"rgb/1.png": NOISE[:50_000]}, mode))
    content[len(content) // 2] ^= 1
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DatasetError, match="damaged"):
        unpack(tmp_path / "a", tmp_path / "out")
    assert names(tmp_path) == ["a"]


def test_archives_inside_are_unpacked(tmp_path: Path) -> None:
    inner = zip_bytes({"seq-01/frame-000000.pose.txt": b"pose"})
    outer = zip_bytes({"redkitchen/seq-01.zip": inner, "redkitchen/TrainSplit.txt": b"sequence1"})
    (tmp_path / "a.zip").write_bytes(outer)
    unpack(tmp_path / "a.zip", tmp_path / "out")
    assert names(tmp_path / "out") == ["TrainSplit.txt", "seq-01"]
    assert (tmp_path / "out" / "seq-01" / "frame-000000.pose.txt").read_bytes() == b"pose"


def test_archive_without_a_single_folder_keeps_its_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tar_bytes({"rgb/1.png": b"1", "rgb.txt": b"2"}))
    unpack(tmp_path / "a", tmp_path / "out")
    assert names(tmp_path / "out") == ["rgb", "rgb.txt"]
