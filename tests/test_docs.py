"""The pages of docs: links lead somewhere, the index is whole, pictures are small."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import tyro

from gsslam.cli.bench import Bench
from gsslam.cli.datasets import Datasets
from gsslam.cli.doctor import Doctor
from gsslam.cli.eval import Eval
from gsslam.cli.export import Export
from gsslam.cli.query import Query
from gsslam.cli.render import Render
from gsslam.cli.report import Report
from gsslam.cli.run import Run, run_defaults
from gsslam.cli.view import View

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
COMMANDS = {c.__name__.lower(): c for c in (Bench, Eval, Export, Query, Render, Report, View)} | {
    "run": Run,
    "doctor": Doctor,
    "datasets": Datasets,
}


@pytest.mark.parametrize("name", PAGES)
def test_links_and_pictures_exist(name: str) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", PAGES[name]):
        assert link.startswith("http") or (DOCS / link).exists(), link


def test_the_index_names_every_page_and_the_readme_the_index() -> None:
    others = set(PAGES) - {"README.md"}
    assert others <= set(re.findall(r"\]\((\w+\.md)\)", PAGES["README.md"]))
    assert "(docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_pictures_are_small_and_shown() -> None:
    shown = " ".join([*PAGES.values(), (ROOT / "README.md").read_text(encoding="utf-8")])
    for path in (DOCS / "images").iterdir():
        assert path.stat().st_size < 150_000, path.name
        assert f"images/{path.name})" in shown, path.name


def commands() -> list[str]:
    """Return the commands of the README and of the pages that new users read."""
    names = ("getting_started.md", "troubleshooting.md", "configuration.md", "outputs.md")
    text = "\n".join([(ROOT / "README.md").read_text("utf-8"), *(PAGES[name] for name in names)])
    return sorted(set(re.findall(r"^ {4}gsslam (.*?)(?: +#.*)?$", text, re.MULTILINE)))


@pytest.mark.parametrize("command", commands())
def test_commands_parse(command: str) -> None:
    words = shlex.split(command)
    kind: Any = COMMANDS[words[0]]
    default = {"default": run_defaults(words)} if kind is Run else {}
    tyro.cli(kind, args=[word.replace("~", "/home/u") for word in words[1:]], **default)


def test_every_command_has_a_place() -> None:
    pages = "\n".join(text for name, text in PAGES.items() if name != "decisions.md")
    for name in COMMANDS:
        assert f"gsslam {name}" in pages
