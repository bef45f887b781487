"""One call of a native operation while its arguments are checked, and how values are described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gsslam.errors import NativeError


class Scope:
    """What the arguments of one call are checked against, and what is noted of them."""

    __slots__ = ("checks_finite", "device", "noted", "sizes", "title")

    def __init__(
        self,
        title: str,
        device: torch.device,
        sizes: dict[str, int],
        noted: dict[str, Any],
        checks_finite: bool,
    ) -> None:
        # Of the operation, for messages.
        self.title = title
        self.device = device
        # Sizes known by now; a tensor adds those that its shape names first.
        self.sizes = sizes
        # For the flight recorder.
        self.noted = noted
        # Whether tensors are read to find values that are not finite.
        self.checks_finite = checks_finite

    def refuse(self, name: str, expected: str, got: str) -> NativeError:
        """Return the error that says so."""
        return NativeError(f"{self.title}: {name} must be {expected}; got {got}")


def described(value: Any) -> str:
    """Say what a value is, without its content."""
    if not isinstance(value, torch.Tensor):
        return f"{value!r}" if isinstance(value, (int, float)) else type(value).__name__
    text = f"{value.dtype}, {tuple(value.shape)}"
    if value.layout is not torch.strided:
        return f"{text}, {value.layout}"
    strides = "" if value.is_contiguous() else f", strides {value.stride()}"
    return f"{text}{strides}, on {value.device}"


def described_all(values: Mapping[str, Any]) -> dict[str, Any]:
    """Say what the arguments of a failed call were."""
    return {
        name: value if isinstance(value, (bool, int, float, str)) else described(value)
        for name, value in values.items()
    }
