"""The quantised linear layer against its twin: packing, rounding, the native kernels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gsslam import _native
from gsslam.errors import NativeError
from gsslam.quant import (
    LinearW4A8,
    dequantize_weight,
    linear_reference,
    quantize_rows,
    quantize_weight,
)
from gsslam.quant.weights import PackedWeight, pack, unpack

SIZES = [(1, 1, 1), (3, 16, 128), (9, 17, 129), (8, 100, 384), (17, 33, 300), (2, 64, 1024)]
FIELDS = ("codes", "scales", "zeros")


def make(outputs: int, inputs: int, seed: int = 0, **kwargs: torch.Tensor) -> LinearW4A8:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator)
    return LinearW4A8(pack(quantize_weight(weight)), **kwargs)


def activations(rows: int, inputs: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("vnni", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_the_twin(isa: str, size: tuple[int, int, int], vnni: bool) -> None:
    rows, outputs, inputs = size
    bias, factors = torch.randn(outputs), torch.rand(inputs) + 0.5
    x = activations(rows, inputs)
    x[0, : inputs // 2] *= 50  # blocks of very different scales
    for layer in (make(outputs, inputs), make(outputs, inputs, bias=bias, factors=factors)):
        layer.vnni = vnni
        exact = linear_reference(x, layer.weight(), layer.bias, layer.factors)
        assert (layer(x) - exact).norm() <= 1e-6 * exact.norm()


@pytest.mark.parametrize("vnni", [True, False])
def test_the_largest_values_do_not_saturate(isa: str, vnni: bool) -> None:
    """All codes 15 and all activations at their limit, of one sign or both."""
    inputs = 256
    weight = torch.full((16, inputs), 15.0)
    weight[:, ::128] = 0
    layer = LinearW4A8(pack(quantize_weight(weight)))
    layer.vnni = vnni
    assert layer.weight().codes.max() == 15
    for sign in (1.0, -1.0):
        y = layer(torch.full((1, inputs), sign))
        torch.testing.assert_close(y, torch.full((1, 16), sign * 15 * (inputs - 2)))


def test_integer_dot_products_give_the_bytes_of_pairwise_ones(isa: str) -> None:
    layer, x = make(100, 300), activations(11, 300)
    layer.vnni = True
    with_vnni = layer(x)
    layer.vnni = False
    assert torch.equal(layer(x), with_vnni)


def test_the_bytes_are_the_same_for_any_number_of_threads_and_rows() -> None:
    layer, x = make(200, 384), activations(37, 384)
    results = set()
    for threads in (1, 2, 3):
        _native.set_thread_count(threads)
        results.add(layer(x).numpy().tobytes())
        results.add(torch.cat([layer(part) for part in x.split([1, 7, 29])]).numpy().tobytes())
    assert len(results) == 1


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (16, 128), (33, 300), (40, 136)])
def test_packing_loses_nothing(outputs: int, inputs: int) -> None:
    weight = quantize_weight(torch.randn(outputs, inputs))
    back = unpack(pack(weight))
    for field in FIELDS:
        assert torch.equal(getattr(back, field), getattr(weight, field))


def test_weights_are_off_by_half_a_step_at_most() -> None:
    weight = torch.randn(20, 300) + torch.linspace(-3, 3, 20)[:, None]
    weight[3], weight[4] = 0, -2
    quantized = quantize_weight(weight)
    step = quantized.scales.repeat_interleave(128, 1)[:, :300]
    error = (dequantize_weight(quantized) - weight).abs()
    assert (error <= step * (0.5 + 1e-4)).all()
    assert not dequantize_weight(quantized)[3].any()


def test_activations_are_off_by_half_a_step_at_most() -> None:
    x = activations(5, 200) * torch.logspace(-20, 20, 5)[:, None]
    x[2] = 0
    values, scales = quantize_rows(x)
    assert values.abs().max() == 127
    step = scales.repeat_interleave(32, 1)[:, :200]
    assert ((values * step - x).abs() <= step * (0.5 + 1e-4)).all()


def test_takes_any_leading_shape() -> None:
    layer, x = make(10, 64), activations(12, 64)
    y = layer(x)
    assert torch.equal(layer(x.view(2, 3, 2, 64)), y.view(2, 3, 2, 10))
    assert torch.equal(layer(x.t().contiguous().t()), y)
    assert layer(x[:0]).shape == (0, 10)
    assert torch.equal(layer(x[0]), y[0])


def test_of_a_linear_layer_with_scales_inside_or_folded() -> None:
    linear, scales = nn.Linear(256, 50), torch.rand(256) + 0.5
    x = activations(6, 256)
    inside = LinearW4A8.from_linear(linear, scales)
    folded = LinearW4A8.from_linear(linear, scales, folded=True)
    torch.testing.assert_close(inside(x), folded(x / scales), rtol=0, atol=2e-2)
    exact = linear(x)
    assert (inside(x) - exact).norm() < 0.15 * exact.norm()


def test_weights_take_less_than_a_seventh_of_float32() -> None:
    for outputs, inputs in [(384, 384), (1536, 384), (384, 1536), (4096, 4096)]:
        layer = LinearW4A8(pack(quantize_weight(torch.zeros(outputs, inputs))))
        assert layer.nbytes <= 4 * outputs * inputs / 7


def test_refuses_what_does_not_fit() -> None:
    layer = make(10, 64)
    with pytest.raises(NativeError, match="x must be"):
        layer(torch.zeros(3, 65))
    with pytest.raises(NativeError, match="x must be"):
        layer(torch.zeros(3, 64, dtype=torch.float64))
    with pytest.raises(NativeError, match="finite"):
        quantize_weight(torch.full((2, 2), torch.nan))
    with pytest.raises(NativeError, match="bias must be"):
        make(10, 64, bias=torch.zeros(9))
    packed = pack(quantize_weight(torch.zeros(10, 64)))
    with pytest.raises(NativeError, match="steps must be"):
        LinearW4A8(PackedWeight(packed.steps, packed.scales, packed.zeros, 10, 640))
