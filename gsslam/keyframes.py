"""Which frames may enter the map."""

from __future__ import annotations


def is_heldout(index: int, every: int) -> bool:
    """Return whether frame ``index`` is kept out of the map, to score a view that it never saw.

    One frame in ``every`` is held out, the last of each group, so that frame 0 can start the map;
    0 holds none out.
    """
    return every > 0 and index % every == every - 1
