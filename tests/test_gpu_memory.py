"""What a run takes of a GPU, told apart from what was in use before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gsslam import gpu_memory
from gsslam.config import SlamConfig
from gsslam.datasets import open_dataset
from gsslam.gpu_memory import GpuMemory
from gsslam.run import RunOptions, run_dataset
from gsslam.run_folder import RunFolder
from tests.conftest import usable_device


def test_without_a_gpu_there_is_nothing_to_say() -> None:
    memory = GpuMemory("cpu")
    memory.sample()
    assert (memory.run_mb, memory.context_mb, memory.described()) == (None, None, "")


def test_the_peak_is_what_came_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([700_000_000, 800_000_000, 950_000_000, 900_000_000])
    monkeypatch.setattr(gpu_memory, "_used", lambda: next(used))
    monkeypatch.setattr(gpu_memory, "_torch_peaks", lambda: (100_000_000, 130_000_000))
    memory = GpuMemory("cuda")
    assert (memory.run_mb, memory.context_mb) == (0, 700)
    for _ in range(3):
        memory.sample()
    assert (memory.run_mb, memory.context_mb) == (250, 700)
    assert memory.described() == (
        "GPU memory: at most 250 MB by the run, 700 MB before it; of the run's, torch reserved"
        " 130 MB for 100 MB of tensors"
    )


@pytest.mark.gpu
def test_a_run_says_what_it_took(tmp_path: Path) -> None:
    usable_device("cuda")
    dataset = open_dataset("synthetic/room", None, resolution=(96, 72), max_frames=8)
    taken = torch.empty(100_000_000, dtype=torch.uint8, device="cuda")
    options = RunOptions(device="cuda", evaluate=False)
    run_dataset(dataset, SlamConfig(), tmp_path / "run", options=options)
    metrics = RunFolder(tmp_path / "run").read_metrics()
    assert metrics["gpu_context_mb"] > taken.numel() / 1e6
    # Tests before this one may have left memory that the run uses.
    assert 0 <= metrics["gpu_memory_mb"] < 400
    assert "GPU memory: at most" in RunFolder(tmp_path / "run").log.read_text()
