import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsslam import _native


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real sequences: GSSLAM_DATA, else ../shared/data beside the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GSSLAM_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real sequences at {folder}; set GSSLAM_DATA to their folder")
    return folder


INSTRUCTION_SETS = ("portable", "avx2", "avx512")
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    """Device of the kernels under test, "cpu" or "cuda"."""
    return usable_device(request.param)


@pytest.fixture(params=[*INSTRUCTION_SETS, CUDA])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same, with the CPU once for each of its instruction sets."""
    before = _native.isa()
    if request.param in INSTRUCTION_SETS and not _native.set_isa(request.param):
        pytest.skip(f"this processor has no {request.param}")
    yield usable_device("cuda" if request.param == "cuda" else "cpu")
    _native.set_isa(before)


def usable_device(device: str) -> str:
    """Return the device, or skip with the reason why it cannot be used."""
    if device == "cuda" and _native.cuda_problem():
        pytest.skip(_native.cuda_problem())
    return device
