"""Everything that a run's future depends on, as arrays and plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class SlamState:
    """What ``Slam.state`` returns and ``Slam.restore`` takes."""

    # Names have a prefix for each part, such as ``map.``.
    arrays: Arrays
    # What JSON can hold.
    values: dict[str, Any]


def with_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return ``arrays`` under names that begin with ``prefix`` and a dot."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def of_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return those that ``with_prefix`` gave that prefix, under their own names."""
    start = f"{prefix}."
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}
