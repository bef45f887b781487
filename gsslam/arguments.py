"""Kinds of arguments that a native operation takes, and how each is checked.

Every kind turns a Python value into what the native module reads, or raises NativeError naming the
operation, the argument, what was expected and what came.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from gsslam import _native
from gsslam.scope import Scope, described


class Argument(Protocol):
    """What all kinds have."""

    @property
    def name(self) -> str:
        """Under which the caller passes it."""
        ...

    def check(self, value: Any, scope: Scope) -> Any:
        """Return ``value`` as the native module reads it; raises NativeError."""
        ...


@dataclass(frozen=True)
class Array:
    """A contiguous tensor on the operation's device, passed by its address."""

    name: str
    # Numbers, or names of sizes that must be the same wherever they appear in a call.
    shape: tuple[int | str, ...]
    dtype: torch.dtype = torch.float32
    # Least value of each size of the shape; empty where 0 will do.
    least: tuple[int, ...] = ()
    # None may be passed instead: address 0.
    optional: bool = False
    # Its values must be finite; looked at only where GSSLAM_CHECK_FINITE is set.
    finite: bool = False

    def check(self, value: Any, scope: Scope) -> int:
        """Return the tensor's address."""
        if value is None and self.optional:
            return 0
        if (
            not isinstance(value, torch.Tensor)
            or value.dtype is not self.dtype
            or value.device != scope.device
            or value.layout is not torch.strided
            or not value.is_contiguous()
            or not self._fits(value.shape, scope.sizes)
        ):
            raise scope.refuse(self.name, self._expected(scope), described(value))
        scope.noted[self.name] = (self.dtype, value.shape)
        if scope.checks_finite and self.finite and not bool(value.isfinite().all()):
            bad = int((~value.isfinite()).sum())
            raise scope.refuse(self.name, "finite", f"{bad} values that are NaN or infinite")
        return value.data_ptr()

    def _fits(self, shape: Sequence[int], sizes: dict[str, int]) -> bool:
        """Compare with the sizes that are known; the others become known where all fits."""
        known = len(sizes)
        if len(shape) == len(self.shape) and all(map(operator.ge, shape, self.least)):
            for actual, size in zip(shape, self.shape, strict=True):
                expected = sizes.setdefault(size, actual) if isinstance(size, str) else size
                if actual != expected:
                    break
            else:
                return True
        while len(sizes) > known:
            sizes.popitem()
        return False

    def _expected(self, scope: Scope) -> str:
        sizes = [
            scope.sizes.get(size, size) if isinstance(size, str) else size for size in self.shape
        ]
        least = f" of at least {_tuple(self.least)}" if self.least else ""
        where = "the CPU" if scope.device.type == "cpu" else str(scope.device)
        return f"{self.dtype}, shape {_tuple(sizes)}{least}, contiguous, on {where}"


@dataclass(frozen=True)
class Size:
    """A size of the tensors, which the caller does not pass."""

    name: str


@dataclass(frozen=True)
class Sizes:
    """Several of them, passed as one list."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """A size that the caller passes and that the tensors behind it must have."""

    name: str

    def check(self, value: Any, scope: Scope) -> int:
        """Return the size, at least 1."""
        if not _is_whole(value) or value < 1:
            raise scope.refuse(self.name, "a whole number of at least 1", repr(value))
        expected = scope.sizes.setdefault(self.name, value)
        if value != expected:
            raise scope.refuse(self.name, str(expected), str(value))
        return int(value)


@dataclass(frozen=True)
class Whole:
    """A whole number in a range, limits included; the upper one may be a size of the tensors."""

    name: str
    low: int = 0
    high: int | str | None = None

    def check(self, value: Any, scope: Scope) -> int:
        """Return the number."""
        high = scope.sizes[self.high] if isinstance(self.high, str) else self.high
        if not _is_whole(value) or value < self.low or (high is not None and value > high):
            raise scope.refuse(self.name, f"a whole number {self._range(high)}", repr(value))
        scope.noted[self.name] = value
        return int(value)

    def _range(self, high: int | None) -> str:
        if high is None:
            return f"of at least {self.low}"
        meaning = f" = {high}" if isinstance(self.high, str) else ""
        return f"from {self.low} to {self.high}{meaning}"


@dataclass(frozen=True)
class Number:
    """A finite number in a range, limits included."""

    name: str
    low: float = -math.inf
    high: float = math.inf
    # It must not be 0 either.
    positive: bool = False

    def check(self, value: Any, scope: Scope) -> float:
        """Return the number."""
        number = _number(value)
        above = number > 0 if self.positive else number >= self.low
        if not (above and number <= self.high and math.isfinite(number)):
            raise scope.refuse(self.name, self._expected(), repr(value))
        scope.noted[self.name] = number
        return number

    def _expected(self) -> str:
        if self.positive:
            return "a positive finite number"
        if self.high < math.inf:
            return f"a number from {self.low:g} to {self.high:g}"
        if self.low > -math.inf:
            return f"a finite number of at least {self.low:g}"
        return "a finite number"


@dataclass(frozen=True)
class Numbers:
    """So many finite numbers in a row."""

    name: str
    length: int

    def check(self, value: Any, scope: Scope) -> list[float]:
        """Return them."""
        is_row = isinstance(value, (list, tuple))
        numbers = [_number(item) for item in value] if is_row else []
        if len(numbers) != self.length or not all(map(math.isfinite, numbers)):
            raise scope.refuse(self.name, f"{self.length} finite numbers", repr(value))
        return numbers


@dataclass(frozen=True)
class Flag:
    """True or false."""

    name: str

    def check(self, value: Any, scope: Scope) -> bool:
        """Return it."""
        if not isinstance(value, bool):
            raise scope.refuse(self.name, "true or false", repr(value))
        return value


@dataclass(frozen=True)
class Native:
    """An object of the native module."""

    name: str
    # Class; that of a plan without its device.
    kind: str
    is_plan: bool = False

    def check(self, value: Any, scope: Scope) -> Any:
        """Return it."""
        kind = native_name(self.kind, scope.device) if self.is_plan else self.kind
        if not isinstance(value, getattr(_native, kind)):
            raise scope.refuse(self.name, f"a native {kind}", type(value).__name__)
        return value


@dataclass(frozen=True)
class Records:
    """Any number of tuples whose fields are arguments themselves; passed as a list of tuples.

    Each record has sizes of its own, beside those of the call.
    """

    name: str
    fields: tuple[Argument, ...]

    def check(self, value: Any, scope: Scope) -> list[Any]:
        """Return the records; one of a single field is that field."""
        if not isinstance(value, (list, tuple)):
            raise scope.refuse(self.name, "a list", type(value).__name__)
        scope.noted[self.name] = len(value)
        return [self._record(index, record, scope) for index, record in enumerate(value)]

    def _record(self, index: int, record: Any, scope: Scope) -> Any:
        title = f"{scope.title}: {self.name}[{index}]"
        noted: dict[str, Any] = {}
        sizes = dict(scope.sizes)
        inner = Scope(title, scope.device, sizes, noted, scope.checks_finite)
        values = (record,) if len(self.fields) == 1 else record
        if not isinstance(values, tuple) or len(values) != len(self.fields):
            names = ", ".join(field.name for field in self.fields)
            raise inner.refuse("record", f"a tuple of {names}", described(record))
        checked = tuple(
            field.check(item, inner) for field, item in zip(self.fields, values, strict=True)
        )
        for name, note in noted.items():
            scope.noted[f"{self.name}[{index}].{name}"] = note
        return checked[0] if len(self.fields) == 1 else checked


def native_name(kind: str, device: torch.device) -> str:
    """Return the class of a plan for a device."""
    return f"{'Cpu' if device.type == 'cpu' else 'Cuda'}{kind}"


def _tuple(items: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _number(value: Any) -> float:
    """Return ``value`` as a float, NaN where it is no number."""
    if type(value) is float:
        return value
    try:
        return math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
