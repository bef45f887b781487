"""Every message that the page on troubleshooting quotes is one that the program can print."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)`([^|]*)\|", PAGE, re.MULTILINE)
# What other programs say.
FOREIGN = {"Could NOT find Python", "libusb-1.0.so.0"}
MESSAGES = [message for message, _ in ROWS if message not in FOREIGN]


def templates() -> list[str]:
    """Return the strings of the sources, with … for every part that is filled in."""
    found = []
    for path in sorted((ROOT / "gsslam").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                )
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%[sd]", "…", node.value))
    native = (ROOT / "cuda_ext").rglob("*.c*")
    for path in (ROOT / "Makefile", *sorted(native)):
        found += re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text(encoding="utf-8"))
        found += re.findall(r'echo "([^"]*)"', path.read_text(encoding="utf-8"))
    return found


TEMPLATES = templates()


@pytest.mark.parametrize("message", MESSAGES)
def test_the_program_says_it(message: str) -> None:
    fixed = message.removesuffix("…").rstrip()
    assert any(fixed in template for template in TEMPLATES)


def test_there_are_enough_and_none_twice() -> None:
    assert len(MESSAGES) >= 25
    assert len(set(MESSAGES)) == len(MESSAGES)
    # Enough of each is fixed to be found by.
    assert all(len(re.sub(r"[^a-z]", "", message)) >= 8 for message in MESSAGES)
