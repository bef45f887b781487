"""The CUDA attention against its float64 twin, forward and backward, in 16 bits."""

from __future__ import annotations

import pytest
import torch

from gsslam.attention import AttentionMask, attention, attention_reference, attention_with_lse
from gsslam.errors import NativeError
from tests.attention.cases import CASES, Case, Tensors
from tests.conftest import usable_device

pytestmark = pytest.mark.gpu

# Relative L2 error of outputs and of gradients: weights and results are rounded to 16 bits.
TOLERANCES = {torch.float16: (6e-4, 1.5e-3), torch.bfloat16: (5e-3, 1.2e-2)}
DTYPES = [pytest.param(dtype, id=str(dtype)[6:]) for dtype in TOLERANCES]
SIZES = {
    **{name: case for name, case in CASES.items() if name != "wide"},  # too wide for the backward
    "one head of 384": Case(1, 1, 1, 300, 333, 384, 384),
    "one head of 512": Case(1, 1, 1, 100, 130, 512, 512),
    "heads of 256": Case(1, 2, 1, 100, 130, 256, 256),
    "heads of 128": Case(2, 4, 2, 190, 260, 128, 128, AttentionMask.causal(offset=70)),
    "heads of 64": Case(1, 6, 6, 150, 150, 64, 64),
    "sums of 256": Case(1, 1, 1, 140, 200, 32, 256),
    "dictionary of 512": Case(1, 1, 1, 1000, 2048, 32, 512),
    "few queries, many keys": Case(1, 1, 1, 3, 5000, 32, 64),
    "few keys, many queries": Case(1, 2, 1, 5000, 70, 32, 256),
    "narrow keys, wide values": Case(1, 1, 1, 70, 90, 32, 768),
    # More blocks than an H200 has multiprocessors: the last ones are split by keys.
    "a last turn of few blocks": Case(1, 1, 1, 17_000, 700, 32, 512),
    "an odd number of tiles": Case(1, 3, 1, 140, 5 * 64 + 1, 128, 128),
}


@pytest.fixture(autouse=True)
def _gpu() -> None:
    usable_device("cuda")


def on_gpu(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to("cuda", dtype)


def mask_on_gpu(mask: AttentionMask | None) -> AttentionMask | None:
    if mask is None or mask.key_lengths is None:
        return mask
    return AttentionMask(mask.left, mask.right, mask.offset, mask.key_lengths.cuda())


def results(case: Case, inputs: Tensors, dtype: torch.dtype) -> Tensors:
    """Output, log-sum-exp and gradients of query, key and value."""
    leaves = [on_gpu(x, dtype).requires_grad_() for x in inputs[:3]]
    output, lse = attention_with_lse(*leaves, mask_on_gpu(case.mask))
    grad_lse = torch.where(lse.isinf(), 0, inputs[4].cuda())
    grads = torch.autograd.grad((output, lse), leaves, (on_gpu(inputs[3], dtype), grad_lse))
    return output.detach(), lse.detach(), *grads


def exact(case: Case, inputs: Tensors, dtype: torch.dtype) -> Tensors:
    """The same by the twin, of the same rounded inputs."""
    leaves = [on_gpu(x, dtype).double().requires_grad_() for x in inputs[:3]]
    output, lse = attention_reference(*leaves, case.mask)
    grad_lse = torch.where(lse.isinf(), 0, inputs[4].cuda().double())
    grads = torch.autograd.grad(
        (output, lse), leaves, (on_gpu(inputs[3], dtype).double(), grad_lse)
    )
    return output.detach(), lse.detach(), *grads


def check(case: Case, dtype: torch.dtype, magnitude: float = 1.0) -> None:
    inputs = case.tensors(0, magnitude)
    ours, twin = results(case, inputs, dtype), exact(case, inputs, dtype)
    empty = twin[1].isinf()
    assert torch.equal(ours[1].isinf(), empty)
    torch.testing.assert_close(ours[1][~empty].double(), twin[1][~empty], rtol=1e-5, atol=1e-5)
    for index, name in ((0, "output"), (2, "grad_query"), (3, "grad_key"), (4, "grad_value")):
        assert ours[index].isfinite().all(), name
        error = (ours[index].double() - twin[index]).norm() / twin[index].norm().clamp(min=1e-2)
        print(f"{name} {dtype} {float(error):.1e}")
        assert error < TOLERANCES[dtype][min(index, 1)], name
        assert not ours[index][twin[index] == 0].any(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SIZES)
def test_agrees_with_the_twin(name: str, dtype: torch.dtype) -> None:
    check(SIZES[name], dtype)


@pytest.mark.parametrize(
    "name",
    [
        "grouped",
        "causal window",
        "padding",
        "dictionary",
        "heads of 128",
        "heads of 64",
        "sums of 256",
    ],
)
def test_sanitize(name: str) -> None:
    """Reaches every pass; small enough for the sanitizers."""
    check(SIZES[name], torch.float16)


def test_a_thousand_runs_give_the_same_bytes() -> None:
    case = SIZES["heads of 128"]
    inputs = case.tensors(1)
    first = results(case, inputs, torch.float16)
    for _ in range(1000):
        assert all(map(torch.equal, first, results(case, inputs, torch.float16)))


@pytest.mark.parametrize("scale", [-0.3, 0.0, 2.0])
@pytest.mark.parametrize("name", ["heads of 64", "heads of 256"])
def test_any_scale(name: str, scale: float) -> None:
    case = SIZES[name]
    query, key, value = (on_gpu(x, torch.float16) for x in case.tensors(3)[:3])
    output, lse = attention_with_lse(query, key, value, None, scale)
    twin, twin_lse = attention_reference(query.double(), key.double(), value.double(), None, scale)
    assert (output.double() - twin).norm() < 6e-4 * twin.norm()
    torch.testing.assert_close(lse.double(), twin_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["heads of 64", "one head of 384", "dictionary of 512"])
def test_nan_comes_through_and_stays_in_its_row(name: str) -> None:
    case = SIZES[name]
    query, key, value = (on_gpu(x, torch.float16) for x in case.tensors(4)[:3])
    query[..., 3, 5] = torch.nan
    output, lse = attention_with_lse(query, key, value)
    assert output[..., 3, :].isnan().all() and lse[..., 3].isnan().all()
    others = torch.arange(case.queries) != 3
    assert output[..., others, :].isfinite().all() and lse[..., others].isfinite().all()


def test_memory_does_not_grow_with_the_product_of_lengths() -> None:
    """Scores of 20,000 x 20,000 in 16 bits would take 800 MB."""
    leaves = [torch.randn(1, 1, 20_000, 64, device="cuda").half().requires_grad_() for _ in "qkv"]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attention(*leaves).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 60e6


def test_refuses_float32() -> None:
    x = torch.zeros(1, 1, 4, 8, device="cuda")
    with pytest.raises(NativeError, match="float16 or bfloat16"):
        attention(x, x, x)


def test_refuses_what_does_not_fit_the_shared_memory() -> None:
    x = torch.zeros(1, 1, 4, 2048, device="cuda", dtype=torch.float16)
    with pytest.raises(NativeError, match="does not fit"):
        attention(x, x, x)
