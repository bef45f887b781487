"""One thing that is known about the computer or the installation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """A line of ``gsslam doctor``."""

    label: str
    value: str
    # What is broken and how to mend it; empty where all is well.
    problem: str = ""
