"""Many runs, each in a process of its own, and one table of what they gave."""

from __future__ import annotations
