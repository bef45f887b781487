import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gsslam import _native

# Torch's idle threads spin, which takes the processors from the native pool.
torch.set_num_threads(1)


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


def usable_device(device: str) -> str:
    """Return the device, or skip with the reason why it cannot be used."""
    if device == "cuda" and _native.cuda_problem():
        pytest.skip(_native.cuda_problem())
    return device


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


@pytest.fixture(params=INSTRUCTION_SETS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set in turn, set for the native kernels."""
    before = _native.isa()
    if not _native.set_isa(request.param):
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    _native.set_isa(before)


@pytest.fixture(autouse=True)
def _thread_count() -> Iterator[None]:
    """Give the native pool back with the number of threads that it had."""
    before = _native.thread_count()
    yield
    if _native.thread_count() != before:
        _native.set_thread_count(before)
