"""Exit statuses of the command line; 1 is also what Python gives to an error nobody expected."""

from __future__ import annotations

SUCCESS, PROBLEM, KNOWN_ERROR, INTERRUPTED = 0, 1, 2, 130
