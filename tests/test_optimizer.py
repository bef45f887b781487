from __future__ import annotations

import copy

import pytest
import torch

from gsslam import _native
from gsslam.errors import NativeError
from gsslam.optimizer import AdamCounts, AdamState, SphereAdam, adam_reference

ROWS, CAPACITY = 8, 2100
RATES = torch.tensor([2e-4, 2e-4, 2e-4, 5e-3, 5e-2, 5e-3, 5e-3, 5e-3])


def gradients(steps: int, touched: float, capacity: int = CAPACITY) -> list[torch.Tensor]:
    """Gradients of very different sizes; a share of the columns is all zero."""
    generator = torch.Generator().manual_seed(5)
    result = []
    for _ in range(steps):
        scale = 10 ** (8 * torch.rand(ROWS, 1, generator=generator) - 6)
        g = scale * torch.randn(ROWS, capacity, generator=generator)
        g[torch.rand(g.shape, generator=generator) < 0.2] = 0  # zero entries of touched spheres
        g[:, torch.rand(capacity, generator=generator) >= touched] = 0
        result.append(g)
    return result


def run_native(
    grads: list[torch.Tensor], count: int, device: str = "cpu"
) -> tuple[torch.Tensor, AdamState, list[AdamCounts]]:
    parameters = torch.zeros(grads[0].shape, device=device)
    state = AdamState.zeros(*parameters.shape, device=device)
    adam, rates = SphereAdam(device=device), RATES.to(device)
    counts = []
    for g in grads:
        gradient = g.clone().to(device)
        counts.append(adam.step(parameters, gradient, state, rates, count))
        assert not gradient[:, :count].any()
        assert torch.equal(gradient[:, count:].cpu(), g[:, count:])
    arrays = (state.first_moment, state.second_moment, state.steps)
    return parameters.cpu(), AdamState(*(array.cpu() for array in arrays)), counts


def run_reference(
    grads: list[torch.Tensor], count: int
) -> tuple[torch.Tensor, AdamState, list[AdamCounts]]:
    parameters = torch.zeros(grads[0].shape, dtype=torch.float64)
    state = AdamState.zeros(*parameters.shape, dtype=torch.float64)
    counts = [
        adam_reference(parameters, g.double(), state, RATES.double(), count, epsilon=1e-15)
        for g in grads
    ]
    return parameters, state, counts


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.linalg.norm(a.double() - b.double()) / torch.linalg.norm(b.double()))


def test_reference_is_torch_adam_when_every_sphere_is_touched() -> None:
    parameters = torch.zeros(ROWS, CAPACITY, dtype=torch.float64)
    state = AdamState.zeros(*parameters.shape, dtype=torch.float64)
    rows = [torch.nn.Parameter(row.clone()) for row in parameters]
    groups = [{"params": [p], "lr": float(r)} for p, r in zip(rows, RATES, strict=True)]
    theirs = torch.optim.Adam(groups, betas=(0.9, 0.999), eps=1e-15)
    for g in gradients(8, 1.0):
        gradient = g.double() + 1e-9
        for p, row in zip(rows, gradient, strict=True):
            p.grad = row.clone()
        theirs.step()
        adam_reference(parameters, gradient.clone(), state, RATES.double(), CAPACITY)
    assert relative_error(parameters, torch.stack([p.detach() for p in rows])) < 1e-13


@pytest.mark.parametrize("count", [1, 7, 16, 513, CAPACITY - 3])
def test_native_agrees_with_the_float64_reference(kernels: str, count: int) -> None:
    grads = gradients(10, 0.6)
    parameters, state, counts = run_native(grads, count, kernels)
    expected, expected_state, expected_counts = run_reference(grads, count)
    assert counts == expected_counts
    assert torch.equal(state.steps, expected_state.steps)
    assert relative_error(parameters[:, :count], expected[:, :count]) < 1e-6
    for row in range(ROWS):  # one by one: their sizes differ by powers of ten
        assert relative_error(state.first_moment[row], expected_state.first_moment[row]) < 1e-6
        assert relative_error(state.second_moment[row], expected_state.second_moment[row]) < 1e-6
    assert not parameters[:, count:].any()


def test_bias_corrections_hold_over_thousands_of_steps() -> None:
    g = torch.randn(ROWS, 20, generator=torch.Generator().manual_seed(2))
    for steps in (1, 10, 1000, 17_000, 18_000, 1_000_000_000, 2**31 - 1):
        parameters, state = torch.zeros(ROWS, 20), AdamState.zeros(ROWS, 20)
        expected, expected_state = parameters.double(), AdamState.zeros(ROWS, 20, torch.float64)
        state.steps.fill_(steps - 1)
        expected_state.steps.fill_(steps - 1)
        SphereAdam().step(parameters, g.clone(), state, RATES, 20)
        adam_reference(expected, g.double(), expected_state, RATES.double(), 20)
        assert (state.steps == steps).all()
        assert relative_error(parameters, expected) < 3e-7


def test_an_untouched_sphere_keeps_everything() -> None:
    grads = gradients(10, 1.0)
    parameters, state, _ = run_native(grads, CAPACITY)
    before, state_before = parameters.clone(), copy.deepcopy(state)
    g = torch.zeros(ROWS, CAPACITY)
    g[3, 700] = 1e-30
    g[:, 800] = -0.0
    assert SphereAdam().step(parameters, g, state, RATES, CAPACITY) == (1, 0)
    others = torch.arange(CAPACITY) != 700
    assert torch.equal(parameters[:, others], before[:, others])
    assert torch.equal(state.first_moment[:, others], state_before.first_moment[:, others])
    assert torch.equal(state.second_moment[:, others], state_before.second_moment[:, others])
    assert torch.equal(state.steps[others], state_before.steps[others])
    assert state.steps[700] == 11
    assert (parameters[:, 700] != before[:, 700]).all()  # momentum moves all its rows


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 2e19, -3e38])
def test_a_sphere_with_a_gradient_that_is_not_finite_is_skipped(device: str, bad: float) -> None:
    g = gradients(1, 1.0)[0]
    clean = g.clone()
    clean[:, [5, 600]] = 0
    g[2, 5] = bad
    g[7, 600] = bad
    parameters, state, counts = run_native([g], CAPACITY, device)
    expected, expected_state, expected_counts = run_native([clean], CAPACITY, device)
    assert counts == [(expected_counts[0].stepped, 2)]
    assert torch.equal(parameters, expected)
    assert torch.equal(state.first_moment, expected_state.first_moment)
    assert torch.equal(state.steps, expected_state.steps)
    reference_counts = run_reference([g], CAPACITY)[2]
    assert reference_counts == counts


def test_bytes_do_not_depend_on_the_number_of_threads() -> None:
    grads = gradients(5, 0.5)
    results = []
    for threads in (1, 2, 3):
        _native.set_thread_count(threads)
        parameters, state, counts = run_native(grads, CAPACITY - 1)
        results.append((parameters, state.first_moment, state.second_moment, state.steps, counts))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0][:4], other[:4], strict=True))
        assert other[4] == results[0][4]


def test_no_spheres() -> None:
    empty = torch.zeros(ROWS, 0)
    assert SphereAdam().step(empty, empty, AdamState.zeros(ROWS, 0), RATES, 0) == (0, 0)


def test_unusable_arguments_are_named() -> None:
    p, state = torch.zeros(ROWS, 10), AdamState.zeros(ROWS, 10)
    adam = SphereAdam()
    with pytest.raises(NativeError, match=r"count must be .* from 0 to capacity = 10; got 11"):
        adam.step(p, p.clone(), state, RATES, 11)
    with pytest.raises(NativeError, match="gradient must be"):
        adam.step(p, torch.zeros(ROWS, 9), state, RATES, 10)
    with pytest.raises(NativeError, match="learning_rates must be"):
        adam.step(p, p.clone(), state, RATES.double(), 10)
    with pytest.raises(NativeError, match="beta2 must be"):
        SphereAdam(betas=(0.9, 1.0))
    with pytest.raises(NativeError, match="epsilon"):
        SphereAdam(epsilon=0)
