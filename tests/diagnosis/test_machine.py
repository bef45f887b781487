from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gsslam.diagnosis import selftest
from gsslam.diagnosis.machine import disk_fact, gpu_facts, machine_facts
from gsslam.diagnosis.selftest import self_test
from gsslam.raster.plan import RasterPlan


def test_this_computer_has_a_fact_for_everything(tmp_path: Path) -> None:
    facts = {fact.label: fact for fact in machine_facts(tmp_path)}
    assert set(facts) >= {"gsslam", "Python", "torch", "GPU", "native module", "threads", "disk"}
    assert torch.__version__ in facts["torch"].value
    assert "_native" in facts["native module"].value
    assert not facts["Python"].problem


def test_a_gpu_that_cannot_be_used_is_a_problem_and_none_at_all_is_not() -> None:
    (fact,) = gpu_facts("the driver is too old", has_driver=True)
    assert fact.problem == "the GPU cannot be used: the driver is too old"
    (fact,) = gpu_facts("no NVIDIA driver is installed", has_driver=False)
    assert not fact.problem
    assert "the CPU is used" in fact.value


def test_a_full_disk_is_a_problem() -> None:
    assert "only 0.20 GB are free in runs" in disk_fact(Path("runs"), 0.2).problem
    assert not disk_fact(Path("runs"), 20).problem


def test_the_self_test_is_passed(device: str) -> None:
    facts = self_test(device)
    assert [fact.problem for fact in facts] == ["", ""]
    for name in ("image", "loss", "gradient", "step", "tracking"):
        assert f"{name} " in facts[0].value
    assert "19,200 spheres at 320x240" in facts[1].value


def test_a_wrong_kernel_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = RasterPlan.forward

    def wrong(plan: RasterPlan, image: torch.Tensor) -> None:
        forward(plan, image)
        image[0, ::2] *= 1.02

    monkeypatch.setattr(RasterPlan, "forward", wrong)
    kernels, _ = self_test("cpu")
    assert "image" in kernels.problem
    assert "do not trust results on cpu" in kernels.problem


def test_a_kernel_that_fails_is_a_fact_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_SMALL", (0, 30))
    kernels, speed = self_test("cpu")
    assert kernels.value == "failed"
    assert kernels.problem.startswith("ConfigError: camera size 0x30")
    assert not speed.problem
