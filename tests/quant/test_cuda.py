"""4-bit weights as fragments, and the kernel that reads them, against the float64 twin."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gsslam.errors import NativeError
from gsslam.quant import LinearW4A8, LinearW4A16, dequantize_weight, quantize_weight
from gsslam.quant.cuda_linear import MOST_ROWS
from gsslam.quant.fragments import from_fragments, to_fragments
from tests.conftest import usable_device

# Outputs and inputs.
SIZES = [(1, 8), (16, 128), (17, 136), (100, 384), (33, 1000), (1536, 384), (4096, 4096)]
# Relative L2 error: outputs are rounded to 16 bits.
TOLERANCES = {torch.float16: 3e-4, torch.bfloat16: 2.4e-3}
DTYPES = [pytest.param(dtype, id=str(dtype)[6:]) for dtype in TOLERANCES]


def random_weight(outputs: int, inputs: int) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0))


def activations(rows: int, inputs: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed))
    return x.to("cuda", dtype)


@pytest.mark.parametrize("size", SIZES[:5])
def test_fragments_come_back(size: tuple[int, int]) -> None:
    weight = quantize_weight(random_weight(*size))
    back = from_fragments(to_fragments(weight), *size)
    for field in ("codes", "scales", "zeros"):
        assert torch.equal(getattr(back, field), getattr(weight, field)), field


def test_a_fragment_lies_where_the_tensor_core_takes_it() -> None:
    """Output 11, input 1 * 32 + 2 * 8 + 4 + 2 + 1 of the second group: see FragmentWeight."""
    codes = torch.zeros(16, 256, dtype=torch.uint8)
    codes[11, 128 + 32 + 16 + 4 + 2 + 1] = 13
    weight = quantize_weight(torch.ones(16, 256))
    fragments = to_fragments(type(weight)(codes, weight.scales, weight.zeros))
    words = fragments.codes[0, 1].view(torch.int32).view(2, 32, 4)
    step, lane, nibble = 3, 4 * 3 + 2, 4 * 1 + 2 * 1 + 1
    assert int(words[0, lane, step]) & 0xFFFFFFFF == 13 << 4 * nibble
    assert int((words != 0).sum()) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 17, 40, MOST_ROWS + 1])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_agrees_with_the_twin(size: tuple[int, int], rows: int, dtype: torch.dtype) -> None:
    check(size, rows, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(100, 384), (33, 1000), (1536, 384)], ids=str)
def test_sanitize(size: tuple[int, int]) -> None:
    for dtype in TOLERANCES:
        check(size, 9, dtype)


def check(size: tuple[int, int], rows: int, dtype: torch.dtype) -> None:
    usable_device("cuda")
    outputs, inputs = size
    generator = torch.Generator().manual_seed(2)
    bias, factors = torch.randn(outputs, generator=generator), None
    if inputs == 384:
        factors = torch.rand(inputs, generator=generator) + 0.5
    layer = LinearW4A16(quantize_weight(random_weight(*size)), bias, factors)
    x = activations(rows, inputs, dtype)
    y = layer(x)
    rounded = x if factors is None else (x * factors.cuda()).to(dtype)
    exact = rounded.double() @ dequantize_weight(layer.weight()).mT + bias.cuda().double()
    assert y.shape == (rows, outputs) and y.dtype == dtype
    error = float((y.double() - exact).norm() / exact.norm())
    # Many rows go through dense weights, which are rounded to 16 bits themselves.
    assert error < TOLERANCES[dtype] * (1 if rows <= MOST_ROWS else 2), error


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bytes_every_time_and_for_any_number_of_rows(dtype: torch.dtype) -> None:
    usable_device("cuda")
    layer = LinearW4A16(quantize_weight(random_weight(1536, 384)))
    x = activations(16, 384, dtype)
    first = layer(x)
    for _ in range(1000):
        assert torch.equal(layer(x), first)
    for row in range(16):
        assert torch.equal(layer(x[row : row + 1])[0], first[row])


@pytest.mark.gpu
def test_is_the_layer_of_the_cpu_but_for_rounding() -> None:
    usable_device("cuda")
    linear = nn.Linear(384, 100)
    cpu = LinearW4A8.from_linear(linear, torch.rand(384) + 0.5)
    layer = LinearW4A16.of(cpu)
    x = torch.randn(2, 3, 384)
    ours, theirs = layer(x.cuda().half()).float().cpu(), cpu(x)
    assert ours.shape == (2, 3, 100)
    assert (ours - theirs).norm() < 2e-2 * theirs.norm()
    assert layer.nbytes < 100 * 384 * 4 / 6


@pytest.mark.gpu
def test_nan_comes_through_and_no_rows_are_no_rows() -> None:
    usable_device("cuda")
    layer = LinearW4A16(quantize_weight(random_weight(100, 384)))
    x = activations(4, 384, torch.float16)
    x[2, 17] = torch.nan
    y = layer(x)
    assert y[2].isnan().all() and y[[0, 1, 3]].isfinite().all()
    assert layer(x[:0]).shape == (0, 100)


@pytest.mark.gpu
def test_refuses_what_it_does_not_take() -> None:
    usable_device("cuda")
    with pytest.raises(NativeError, match="multiple of 8"):
        LinearW4A16(quantize_weight(random_weight(4, 12)))
    layer = LinearW4A16(quantize_weight(random_weight(4, 16)))
    for x in (torch.zeros(1, 16), torch.zeros(1, 16, device="cuda"), activations(1, 8, torch.half)):
        with pytest.raises(NativeError, match="float16 or bfloat16"):
            layer(x)
