"""The door to the native module: every tensor is checked here before its address is passed on."""

from __future__ import annotations

import torch

from gsslam.errors import NativeError


def address(
    tensor: torch.Tensor, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> int:
    """Return the address of a contiguous CPU tensor of exactly this shape and type.

    Raises NativeError naming the argument, what was expected and what came.
    """
    if not isinstance(tensor, torch.Tensor):
        raise NativeError(f"{name} must be a torch tensor, not {type(tensor).__name__}")
    expected = f"{dtype}, shape {tuple(shape)}, contiguous, on the CPU"
    if tensor.dtype != dtype or tuple(tensor.shape) != tuple(shape):
        raise NativeError(f"{name} must be {expected}; got {tensor.dtype}, {tuple(tensor.shape)}")
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise NativeError(
            f"{name} must be {expected}; got strides {tensor.stride()} on {tensor.device}"
        )
    return tensor.data_ptr()
