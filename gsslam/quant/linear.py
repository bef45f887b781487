"""The quantised linear layer as a PyTorch module."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from gsslam.errors import NativeError
from gsslam.feature_operations import LINEAR_WEIGHTS
from gsslam.native import Plan
from gsslam.quant.weights import (
    OUTPUT_TILE,
    PackedWeight,
    QuantizedWeight,
    groups_of,
    pack,
    quantize_weight,
    unpack,
)
from gsslam.scope import Scope


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
        if x.device.type != "cpu":
            raise NativeError("the quantised linear layer runs on the CPU; move its input there")
        sizes = {"outputs": self.outputs, "inputs": self.inputs}
        _plan().call("run", x=rows, vnni=self.vnni, y=y, **sizes, **self._weights())
        return y.reshape(*x.shape[:-1], self.outputs)

    def _weights(self) -> dict[str, torch.Tensor | None]:
        return {array.name: getattr(self, array.name) for array in LINEAR_WEIGHTS}

    def _check(self) -> None:
        """Raise NativeError unless the weights are those of a layer of this size."""
        groups = groups_of(self.inputs)
        sizes = {
            "tiles": -(-self.outputs // OUTPUT_TILE),
            "step_rows": 16 * groups,
            "groups": groups,
            "tile": OUTPUT_TILE,
            "outputs": self.outputs,
            "inputs": self.inputs,
        }
        scope = Scope("LinearW4A8.weights", torch.device("cpu"), sizes, {}, False)
        weights = self._weights()
        for array in LINEAR_WEIGHTS:
            array.check(weights[array.name], scope)


@cache
def _plan() -> Plan:
    """Return the kernels, which keep nothing between calls."""
    return Plan("LinearW4A8", "cpu")
