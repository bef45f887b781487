"""What the README says holds: its example runs, its commands and links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gsslam.datasets import list_datasets

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(re.fullmatch(rf"{i} tracked \d+ spheres", line) for i, line in enumerate(lines))
    assert len(names["trajectory"]) == 5  # type: ignore[arg-type]
    assert names["view"].silhouette.mean() > 0.9  # type: ignore[attr-defined]


def test_links_and_targets_exist() -> None:
    # Benchmarks are written from measurements, after everything else.
    links = set(re.findall(r"\]\(([^)]+)\)", README))
    assert links
    assert [link for link in sorted(links) if not (ROOT / link).exists()] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^ +make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_datasets_it_names_are_in_the_catalogue() -> None:
    names = {info.name for info in list_datasets()}
    families = "tum|7scenes|synthetic|replica|bonn|icl_nuim"
    for name in re.findall(rf"(?:--dataset|download) ((?:{families})/\w+)", README):
        assert name in names


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120
