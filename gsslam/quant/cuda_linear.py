"""The linear layer with 4-bit weights and 16-bit activations, for few rows on a GPU."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from gsslam.errors import NativeError
from gsslam.native import Plan
from gsslam.quant.fragments import FragmentWeight, from_fragments, to_fragments
from gsslam.quant.linear import LinearW4A8
from gsslam.quant.reference import dequantize_weight
from gsslam.quant.weights import QuantizedWeight

# Reading weights again for every 16 rows is slower from here on than a product with dense weights.
MOST_ROWS = 64
_HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


class LinearW4A16(nn.Module):
    """y = x Wᵀ + b with a 4-bit W and x in float16 or bfloat16; sums in float32.

    For up to 64 rows by a kernel that reads the 4-bit weights, with the same bytes whatever the
    number of rows; more rows go through torch's product with the weights made dense for the call.
    Not differentiable. Inputs must be a multiple of 8.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    bias: torch.Tensor | None
    factors: torch.Tensor | None

    def __init__(
        self,
        weight: QuantizedWeight,
        bias: torch.Tensor | None = None,
        factors: torch.Tensor | None = None,
        device: torch.device | str = "cuda",
    ) -> None:
        """Place a layer on a GPU; ``bias`` (N), ``factors`` (K) as of LinearW4A8."""
        super().__init__()
        self.outputs, self.inputs = weight.codes.shape
        if self.inputs % 8:
            raise NativeError(f"the {self.inputs} inputs must be a multiple of 8; fill them up")
        fragments = to_fragments(weight)
        for name in ("codes", "scales", "zeros"):
            self.register_buffer(name, getattr(fragments, name).to(device))
        for name, values in (("bias", bias), ("factors", factors)):
            kept = None if values is None else values.detach().float().contiguous().to(device)
            self.register_buffer(name, kept)

    @staticmethod
    def of(layer: LinearW4A8, device: torch.device | str = "cuda") -> LinearW4A16:
        """Return the same layer for a GPU."""
        return LinearW4A16(layer.weight(), layer.bias, layer.factors, device)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights with their scales and zero points, without the bias."""
        return self.codes.nbytes + self.scales.nbytes + self.zeros.nbytes

    def weight(self) -> QuantizedWeight:
        """Return the weights unpacked, on the layer's device."""
        fragments = FragmentWeight(self.codes, self.scales, self.zeros)
        return from_fragments(fragments, self.outputs, self.inputs)

    def extra_repr(self) -> str:
        """Return what ``print`` shows of the layer."""
        return f"inputs={self.inputs}, outputs={self.outputs}, bias={self.bias is not None}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (..., N) for (..., K) in 16 bits; raises NativeError for anything else."""
        if not x.is_cuda or x.dtype not in _HALVES or x.shape[-1] != self.inputs:
            raise NativeError(
                f"x must be float16 or bfloat16 (..., {self.inputs}) on a GPU; got {x.dtype} "
                f"{tuple(x.shape)} on {x.device}"
            )
        rows = x.detach().reshape(-1, self.inputs)
        if self.factors is not None:
            rows = (rows * self.factors).to(x.dtype)
        rows = rows.contiguous()
        if rows.shape[0] > MOST_ROWS:
            return self._dense(rows).reshape(*x.shape[:-1], self.outputs)
        y = rows.new_empty((rows.shape[0], self.outputs))
        weights = {name: getattr(self, name) for name in ("codes", "scales", "zeros", "bias")}
        _plan(x.device).call(
            f"run_{_HALVES[x.dtype]}", x=rows, y=y, outputs=self.outputs, **weights
        )
        return y.reshape(*x.shape[:-1], self.outputs)

    def _dense(self, rows: torch.Tensor) -> torch.Tensor:
        dense = dequantize_weight(self.weight()).to(rows.dtype)
        bias = None if self.bias is None else self.bias.to(rows.dtype)
        return nn.functional.linear(rows, dense, bias)


@cache
def _plan(device: torch.device) -> Plan:
    """Return a device's kernels, which keep nothing between calls."""
    return Plan("LinearW4A16", device)
