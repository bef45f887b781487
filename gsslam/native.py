"""The door to the native module: every tensor is checked here before its address is passed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gsslam import _native
from gsslam.errors import NativeError


@dataclass(frozen=True)
class Kernels:
    """The native kernels of one device."""

    device: torch.device

    @staticmethod
    def on(device: torch.device | str) -> Kernels:
        """Choose the kernels of ``device``; raises NativeError where it has none."""
        device = torch.device(device)
        if device.type == "cpu":
            return Kernels(device)
        if device.type != "cuda":
            raise NativeError(f"there are no kernels for device {device}; use cpu or cuda")
        index = torch.cuda.current_device() if device.index is None else device.index
        problem = _native.cuda_problem(index)
        if problem:
            raise NativeError(f"device {device} cannot be used: {problem}")
        return Kernels(torch.device("cuda", index))

    def make(self, name: str, *arguments: float) -> Any:
        """Make a native plan, by its name without the device."""
        if self.device.type == "cpu":
            return getattr(_native, f"Cpu{name}")(*arguments)
        return getattr(_native, f"Cuda{name}")(*arguments, self.device.index)

    def stream(self) -> tuple[int, ...]:
        """Return the last argument of every CUDA call, torch's current stream; none on the CPU."""
        if self.device.type == "cpu":
            return ()
        return (torch.cuda.current_stream(self.device).cuda_stream,)

    def address(
        self,
        tensor: torch.Tensor,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.float32,
    ) -> int:
        """Return the address of a contiguous tensor of this device, of exactly this shape and type.

        Raises NativeError naming the argument, what was expected and what came.
        """
        if not isinstance(tensor, torch.Tensor):
            raise NativeError(f"{name} must be a torch tensor, not {type(tensor).__name__}")
        where = "the CPU" if self.device.type == "cpu" else str(self.device)
        expected = f"{dtype}, shape {tuple(shape)}, contiguous, on {where}"
        if tensor.dtype != dtype or tuple(tensor.shape) != tuple(shape):
            raise NativeError(
                f"{name} must be {expected}; got {tensor.dtype}, {tuple(tensor.shape)}"
            )
        if tensor.device != self.device or not tensor.is_contiguous():
            raise NativeError(
                f"{name} must be {expected}; got strides {tensor.stride()} on {tensor.device}"
            )
        return tensor.data_ptr()
