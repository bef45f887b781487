"""The native attention against its float64 twin, forward and backward."""

from __future__ import annotations

import resource

import pytest
import torch

from gsslam import _native
from gsslam.attention import AttentionMask, attention, attention_reference, attention_with_lse
from gsslam.errors import NativeError
from tests.attention.cases import CASES, Case, Tensors, lengths

# Of float32 sums of some thousand terms.
TOLERANCE = 2e-6


def relative_error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """L2 norm of the difference over that of the exact one."""
    return float((ours.double() - exact).norm() / exact.norm().clamp(min=1e-30))


def evaluate(case: Case, inputs: Tensors, scale: float | None = None) -> Tensors:
    """Output, log-sum-exp and the gradients of query, key and value, natively."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs[:3]]
    results = attention_with_lse(*leaves, case.mask, scale)
    grad_lse = torch.where(results[1].isinf(), 0, inputs[4])
    grads = torch.autograd.grad(results, leaves, (inputs[3], grad_lse))
    return *(result.detach() for result in results), *grads


def exact(case: Case, inputs: Tensors, scale: float | None = None) -> Tensors:
    """The same by the twin."""
    leaves = [tensor.double().requires_grad_() for tensor in inputs[:3]]
    results = attention_reference(*leaves, case.mask, scale)
    grad_lse = torch.where(results[1].isinf(), 0, inputs[4].double())
    grads = torch.autograd.grad(results, leaves, (inputs[3].double(), grad_lse))
    return *(result.detach() for result in results), *grads


def assert_agrees(
    case: Case, inputs: Tensors, tolerance: float, scale: float | None = None
) -> None:
    ours, twin = evaluate(case, inputs, scale), exact(case, inputs, scale)
    empty = twin[1].isinf()
    assert torch.equal(ours[1].isinf(), empty)
    torch.testing.assert_close(ours[1][~empty].double(), twin[1][~empty], rtol=tolerance, atol=2e-6)
    for name, mine, right in zip(
        ("output", "grad_query", "grad_key", "grad_value"),
        (ours[0], *ours[2:]),
        (twin[0], *twin[2:]),
        strict=True,
    ):
        assert mine.isfinite().all(), name
        assert torch.equal(mine[right == 0], torch.zeros_like(mine[right == 0])), name
        assert relative_error(mine, right) < tolerance, name


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_twin(isa: str, name: str) -> None:
    assert_agrees(CASES[name], CASES[name].tensors(), TOLERANCE)


@pytest.mark.parametrize("scale", [0.0, 0.01, -1.0, 3.0])
def test_scales(scale: float) -> None:
    case = CASES["grouped"]
    assert_agrees(case, case.tensors(1), 1e-5, scale)


def test_large_scores_stay_exact() -> None:
    """Scores up to thousands: one key takes all, and nothing overflows."""
    case = CASES["causal window"]
    assert_agrees(case, case.tensors(2, magnitude=1000.0), 1e-3)


def test_equal_scores_give_the_mean() -> None:
    query, value = torch.zeros(1, 1, 3, 8), torch.randn(1, 1, 77, 5)
    output, lse = attention_with_lse(query, torch.randn(1, 1, 77, 8), value)
    torch.testing.assert_close(output, value.mean(2, keepdim=True).expand_as(output))
    torch.testing.assert_close(lse, torch.full_like(lse, 77.0).log())


def test_ascending_scores_rescale_what_was_summed_before() -> None:
    """Every tile's maximum is above the last one's."""
    keys = torch.linspace(0, 300, 400)[None, None, :, None]
    case = Case(1, 1, 1, 1, 400, 1, 4)
    _, _, value, *grads = case.tensors()
    assert_agrees(case, (torch.ones(1, 1, 1, 1), keys, value, *grads), 1e-5, 1.0)


def test_a_nan_comes_through() -> None:
    query, key, value = (torch.randn(1, 1, 70, 8) for _ in range(3))
    query[0, 0, 3, 2] = torch.nan
    output = attention(query, key, value)
    assert output[0, 0, 3].isnan().all()
    assert output[0, 0, torch.arange(70) != 3].isfinite().all()


def test_empty_inputs() -> None:
    query, key = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 0, 4)
    output, lse = attention_with_lse(query, key, torch.randn(1, 2, 0, 5))
    assert torch.equal(output, torch.zeros(1, 2, 3, 5))
    assert (lse == -torch.inf).all()
    assert attention(query[:, :, :0], query, query).shape == (1, 2, 0, 4)
    assert attention(query[:0], query[:0], query[:0]).shape == (0, 2, 3, 4)


@pytest.mark.parametrize("name", ["grouped", "causal, window, padding", "wide"])
def test_the_bytes_are_the_same_for_any_number_of_threads(name: str) -> None:
    case, results = CASES[name], set()
    inputs = case.tensors(3)
    for threads in (1, 2, 3, 2):
        _native.set_thread_count(threads)
        results.add(b"".join(x.numpy().tobytes() for x in evaluate(case, inputs)))
    assert len(results) == 1


def test_a_thousand_runs_give_the_same_bytes() -> None:
    case = CASES["one over a tile"]
    inputs = case.tensors(4)
    _native.set_thread_count(3)
    results = {b"".join(x.numpy().tobytes() for x in evaluate(case, inputs)) for _ in range(1000)}
    assert len(results) == 1


def test_views_that_are_not_contiguous() -> None:
    case = Case(2, 3, 3, 40, 50, 16, 16)
    query, key, value, *_ = case.tensors()
    turned = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value))
    assert torch.equal(attention(*turned), attention(query, key, value))


def test_memory_does_not_grow_with_the_product_of_lengths() -> None:
    """Scores of 12,000 x 12,000 would take 576 MB."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 1, 12_000, 4, generator=generator) for _ in range(3))
    leaves = [x.requires_grad_() for x in (query, key, value)]
    mask = AttentionMask(20, 20)
    attention(*(x[:, :, :100] for x in leaves), mask).sum().backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attention(*leaves, mask).sum().backward()
    attention(*(x.detach() for x in leaves))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 30_000


def test_passes_opcheck() -> None:
    case = CASES["causal, window, padding"]
    query, key, value = (x.requires_grad_() for x in case.tensors()[:3])
    arguments = (query, key, value, case.mask.key_lengths, 0.3, 40, 0, 3)
    results = torch.library.opcheck(torch.ops.gsslam.attention.default, arguments)
    assert set(results.values()) == {"SUCCESS"}


def test_runs_under_torch_compile() -> None:
    inputs = CASES["grouped"].tensors()

    def loss(query: torch.Tensor) -> torch.Tensor:
        return attention(2 * query, inputs[1], inputs[2]).square().sum()

    grads = []
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        query = inputs[0].clone().requires_grad_()
        function(query).backward()
        grads.append(query.grad)
    assert grads[0].any()
    torch.testing.assert_close(*grads)


def test_has_no_second_derivative() -> None:
    query = torch.randn(1, 1, 3, 4, requires_grad=True)
    output = attention(query, torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 2))
    (grad,) = torch.autograd.grad(output.sum(), query, create_graph=True)
    with pytest.raises(NativeError, match="no second derivative"):
        torch.autograd.grad(grad.sum(), query)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((1, 3, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)), "multiple of the 2"),
        (((1, 2, 4, 8), (1, 2, 5, 7), (1, 2, 5, 8)), "key must be"),
        (((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 6, 8)), "value must be"),
        (((2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)), "batch, heads, tokens, channels"),
    ],
)
def test_refuses_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(NativeError, match=message):
        attention(*(torch.zeros(shape) for shape in shapes))


def test_refuses_other_types_and_limits() -> None:
    x = torch.zeros(1, 1, 2, 2)
    with pytest.raises(NativeError, match="float32"):
        attention(x.double(), x.double(), x.double())
    with pytest.raises(NativeError, match="key_lengths must be"):
        attention(x, x, x, AttentionMask.padding(lengths(2, 2)))
    with pytest.raises(NativeError, match="left"):
        AttentionMask(left=-1)
