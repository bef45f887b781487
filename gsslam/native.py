"""The door to the native module: every call goes through the table of operations."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from gsslam import _native
from gsslam.arguments import native_name
from gsslam.errors import NativeError
from gsslam.operation import Operation
from gsslam.operations import PLANS, STRUCTURES
from gsslam.recorder import recorder
from gsslam.scope import Scope, described_all

# Whether values of tensors are read to find those that are not finite: slow, for finding faults.
CHECKS_FINITE = os.environ.get("GSSLAM_CHECK_FINITE", "") not in ("", "0")


@cache
def cuda_problem(index: int) -> str:
    """Return why a GPU cannot be used, empty where it can; asked once, as the answer takes long."""
    problem: str = _native.cuda_problem(index)
    if not problem and not torch.cuda.is_available():
        return "torch finds no usable NVIDIA GPU; install a build of torch with CUDA"
    return problem


def native_device(device: torch.device | str) -> torch.device:
    """Return the device with its index; raises NativeError where there are no kernels for it."""
    device = torch.device(device)
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise NativeError(f"there are no kernels for device {device}; use cpu or cuda")
    problem = cuda_problem(device.index or 0)
    if problem:
        raise NativeError(f"device {device} cannot be used: {problem}")
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.device("cuda", index)


def native_structure(kind: str, **values: Any) -> Any:
    """Make a plain native value of the table, such as a View; raises NativeError."""
    scope = Scope(kind, torch.device("cpu"), {}, {}, CHECKS_FINITE)
    return getattr(_native, kind)(*_structure(kind).check(values, scope))


@cache
def _structure(kind: str) -> Operation:
    return Operation(kind, STRUCTURES[kind])


class Plan:
    """A native object with buffers of its own, whose operations are called by the table.

    Arguments are passed by their names in the table; NativeError names what is wrong with one.
    """

    def __init__(self, kind: str, device: torch.device | str, **values: Any) -> None:
        """Make the plan ``kind`` of the table for a device."""
        self.device = native_device(device)
        # Sizes that are known before a call and that its tensors must have; those given here hold
        # for every call.
        self.sizes: dict[str, int] = {}
        self._kind = kind
        self._device_name = str(self.device)
        table = PLANS[kind]
        if self.device.type not in table.devices:
            raise NativeError(f"{kind} has no kernels for device {self.device}")
        native = getattr(_native, native_name(kind, self.device))
        index = () if self.device.type == "cpu" else (self.device.index,)
        make = Operation("make", table.make)
        self.native = self._call(make, native, values, self.sizes, index)
        self._operations: dict[str, tuple[Operation, Callable[..., Any]]] = {
            operation.name: (operation, getattr(self.native, operation.name))
            for operation in table.operations
            if self.device.type in operation.devices
        }

    def call(self, operation_name: str, /, **values: Any) -> Any:
        """Call an operation; on a GPU it is queued on torch's current stream."""
        operation, method = self._operations[operation_name]
        return self._call(operation, method, values, self.sizes.copy(), self._stream())

    def bytes(self) -> int:
        """Return how much memory the buffers take."""
        return int(self.native.bytes())

    def _stream(self) -> tuple[int, ...]:
        if self.device.type == "cpu":
            return ()
        return (torch.cuda.current_stream(self.device).cuda_stream,)

    def _call(
        self,
        operation: Operation,
        method: Callable[..., Any],
        values: dict[str, Any],
        sizes: dict[str, int],
        last: tuple[int, ...],
    ) -> Any:
        title = f"{self._kind}.{operation.name}"
        entry = recorder.begin(title, self._device_name, last[0] if last else None)
        scope = Scope(title, self.device, sizes, entry.arguments, CHECKS_FINITE)
        try:
            result = method(*operation.check(values, scope), *last)
        except BaseException as error:
            entry.arguments = described_all(values)
            entry.finish(error)
            raise
        entry.finish()
        return result
