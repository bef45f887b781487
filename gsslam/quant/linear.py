"""The quantised linear layer as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from gsslam import _native
from gsslam.errors import NativeError
from gsslam.native import Kernels
from gsslam.quant.weights import (
    OUTPUT_TILE,
    PackedWeight,
    QuantizedWeight,
    groups_of,
    pack,
    quantize_weight,
    unpack,
)


class LinearW4A8(nn.Module):
    """y = x Wᵀ + b with a 4-bit W and x rounded to 8 bits on the way in; not differentiable.

    Runs on the CPU. ``vnni`` may be set to False to do without the processor's integer dot
    products.
    """

    steps: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    bias: torch.Tensor | None
    factors: torch.Tensor | None

    def __init__(
        self,
        weight: PackedWeight,
        bias: torch.Tensor | None = None,
        factors: torch.Tensor | None = None,
    ) -> None:
        """``bias`` (N); ``factors`` (K) are multiplied with the inputs before they are rounded."""
        super().__init__()
        self.outputs, self.inputs, self.vnni = weight.outputs, weight.inputs, True
        self.register_buffer("steps", weight.steps)
        self.register_buffer("scales", weight.scales)
        self.register_buffer("zeros", weight.zeros)
        for name, values in (("bias", bias), ("factors", factors)):
            kept = None if values is None else values.detach().float().contiguous()
            self.register_buffer(name, kept)
        self._check()

    @staticmethod
    def from_linear(
        linear: nn.Linear, input_scales: torch.Tensor | None = None, *, folded: bool = False
    ) -> LinearW4A8:
        """Quantise a layer, its weights times ``input_scales`` (K) where given.

        ``folded`` says that the operation before already divides by them; else the layer does.
        """
        weight, factors = linear.weight.detach(), None
        if input_scales is not None:
            weight = weight * input_scales
            factors = None if folded else 1 / input_scales
        return LinearW4A8(pack(quantize_weight(weight)), linear.bias, factors)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights with their scales and zero points, without the bias."""
        return self.steps.nbytes + self.scales.nbytes + self.zeros.nbytes

    def weight(self) -> QuantizedWeight:
        """Return the weights unpacked."""
        packed = PackedWeight(self.steps, self.scales, self.zeros, self.outputs, self.inputs)
        return unpack(packed)

    def extra_repr(self) -> str:
        """Return what ``print`` shows of the layer."""
        return f"inputs={self.inputs}, outputs={self.outputs}, bias={self.bias is not None}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (..., N) for float32 (..., K); raises NativeError for anything else."""
        rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
        y = rows.new_empty((rows.shape[0], self.outputs))
        kernels = Kernels.on(x.device)
        if kernels.device.type != "cpu":
            raise NativeError("the quantised linear layer runs on the CPU; move its input there")
        _native.cpu_linear_w4a8(
            self.steps.data_ptr(),
            self.scales.data_ptr(),
            self.zeros.data_ptr(),
            0 if self.bias is None else self.bias.data_ptr(),
            self.outputs,
            self.inputs,
            kernels.address(rows, "x", (rows.shape[0], self.inputs)),
            0 if self.factors is None else self.factors.data_ptr(),
            rows.shape[0],
            self.vnni,
            y.data_ptr(),
        )
        return y.reshape(*x.shape[:-1], self.outputs)

    def _check(self) -> None:
        kernels = Kernels.on("cpu")
        tiles, groups = -(-self.outputs // OUTPUT_TILE), groups_of(self.inputs)
        kernels.address(self.steps, "steps", (tiles, 16 * groups, 64), torch.uint8)
        kernels.address(self.scales, "scales", (tiles, groups, OUTPUT_TILE))
        kernels.address(self.zeros, "zeros", (tiles, groups, OUTPUT_TILE), torch.uint8)
        if self.bias is not None:
            kernels.address(self.bias, "bias", (self.outputs,))
        if self.factors is not None:
            kernels.address(self.factors, "factors", (self.inputs,))
