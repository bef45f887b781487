"""What an operation of the native module is: its name, its arguments, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gsslam.arguments import Argument, Size, Sizes
from gsslam.errors import NativeError
from gsslam.scope import Scope

BOTH, CPU, CUDA = ("cpu", "cuda"), ("cpu",), ("cuda",)


@dataclass(frozen=True)
class Operation:
    """One method of a native class."""

    name: str
    arguments: tuple[Argument | Size | Sizes, ...]
    devices: tuple[str, ...] = BOTH

    @cached_property
    def _passed(self) -> list[tuple[int, Argument]]:
        arguments = enumerate(self.arguments)
        return [
            (i, argument) for i, argument in arguments if not isinstance(argument, (Size, Sizes))
        ]

    @cached_property
    def _sizes(self) -> list[tuple[int, str]]:
        return [(i, size.name) for i, size in enumerate(self.arguments) if isinstance(size, Size)]

    @cached_property
    def _size_lists(self) -> list[tuple[int, tuple[str, ...]]]:
        return [(i, s.names) for i, s in enumerate(self.arguments) if isinstance(s, Sizes)]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(argument.name for _, argument in self._passed)

    def check(self, values: Mapping[str, Any], scope: Scope) -> list[Any]:
        """Return the native arguments for ``values`` by name; raises NativeError."""
        if not values.keys() <= self._names:
            unknown = ", ".join(sorted(values.keys() - self._names))
            raise NativeError(f"{scope.title} has no argument {unknown}")
        native: list[Any] = [None] * len(self.arguments)
        for place, argument in self._passed:
            native[place] = argument.check(values.get(argument.name), scope)
        for place, name in self._sizes:
            native[place] = scope.sizes[name]
        for place, names in self._size_lists:
            native[place] = [scope.sizes[name] for name in names]
        return native


@dataclass(frozen=True)
class PlanTable:
    """A native class with buffers of its own: how it is made, and its methods."""

    make: tuple[Argument, ...]
    operations: tuple[Operation, ...]
    devices: tuple[str, ...] = BOTH
