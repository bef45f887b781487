"""No data race in the CPU kernels, as a thread sanitizer sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.thread_sanitizer import build, obstacle, run


def test_the_cpu_kernels_have_no_data_race(tmp_path: Path) -> None:
    reason = obstacle(tmp_path)
    if reason:
        pytest.skip(reason)
    program = build(tmp_path)
    assert run(program) == ""
    assert "plant_race" in run(program, "planted")
