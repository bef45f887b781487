"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or that a user should know."""

    # Name of the check, such as ``depth-scale``.
    check: str
    # What is wrong, in plain words.
    what: str
    # What to do about it.
    fix: str
    # Whether SLAM will fail or suffer; otherwise it is only worth knowing.
    is_problem: bool = True
