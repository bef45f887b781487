import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gsslam import _native
from gsslam.run import run_dataset
from gsslam.source import Source
from tests.small_room import CONFIG as SMALL_CONFIG

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


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run over the synthetic room, 12 frames of 96 x 72; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "room"
    source = Source("synthetic/room", resolution=(96, 72), max_frames=12)
    run_dataset(source.open(), SMALL_CONFIG, out, source=source)
    return out


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
def kernels(request: pytest.FixtureRequest) -> str:
    """The same, with the CPU once for each of its instruction sets."""
    if request.param == "cuda":
        return usable_device("cuda")
    use_instruction_set(request.param)
    return "cpu"


@pytest.fixture(params=INSTRUCTION_SETS)
def isa(request: pytest.FixtureRequest) -> str:
    """Each instruction set in turn, set for the native kernels."""
    use_instruction_set(request.param)
    return str(request.param)


def use_instruction_set(name: str) -> None:
    """Set it for the rest of the test, or skip the test."""
    if not _native.set_isa(name):
        pytest.skip(f"this processor has no {name}")


@pytest.fixture(autouse=True)
def _native_settings() -> Iterator[None]:
    """Give the native module back with the instruction set and the threads that it had."""
    isa, threads = _native.isa(), _native.thread_count()
    yield
    _native.set_isa(isa)
    if _native.thread_count() != threads:
        _native.set_thread_count(threads)
