"""The parts that the script names."""

from __future__ import annotations

import pytest

from gsslam.config import MappingConfig, SlamConfig
from gsslam.datasets import open_dataset
from gsslam.slam import Slam
from scripts import gpu_memory


def test_every_part_is_there(device: str) -> None:
    dataset = open_dataset("synthetic/room", None, resolution=(48, 36), max_frames=8)
    config = SlamConfig(mapping=MappingConfig(iterations=2, first_iterations=2))
    with Slam(config, dataset.camera, device) as slam:
        for index in range(len(dataset)):
            slam.track(dataset[index])
        parts = gpu_memory.parts(slam)
    only_there = {name for name, size in parts.items() if size == 0}
    expected = {"images of the window's keyframes"} if device == "cpu" else set()
    expected |= {name for name in parts if name.startswith(("mapping: l", "tracking: "))}
    assert only_there == (expected if device == "cpu" else set())


@pytest.mark.gpu
def test_parts_and_sums_are_printed(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    if device == "cpu":
        pytest.skip("there is nothing to print")
    options = gpu_memory.Options(None, dataset="synthetic/room", capacity=90_000, frames=6)  # type: ignore[arg-type]
    gpu_memory.main(options)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("all of these") for line in lines)
    sizes = {line[12:].strip(): float(line[:9]) for line in lines if line[10:12] == "MB"}
    assert sizes["all of these"] > 0
    # Tests before this one may have left memory that the run uses.
    assert sizes["the most that the run took"] >= 0
