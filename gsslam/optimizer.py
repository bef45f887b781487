"""Adam on the spheres that a step has touched.

Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1, except that every
sphere has a step count of its own: a sphere that no pixel saw keeps its parameters, its moments and
its count. With one shared count, moments of unseen spheres would decay and move them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from gsslam.native import Plan

# A gradient entry of at least this size has no square in float32; its sphere is skipped.
MAX_GRADIENT = 1.8e19


class AdamCounts(NamedTuple):
    """How many spheres a step moved, and how many it left for a gradient that is not finite."""

    stepped: int
    skipped: int


@dataclass
class AdamState:
    """Moments and step counts of a map of ``capacity`` spheres with ``rows`` parameters each."""

    first_moment: torch.Tensor  # (rows, capacity)
    second_moment: torch.Tensor  # (rows, capacity)
    steps: torch.Tensor  # (capacity,) int32

    @staticmethod
    def zeros(
        rows: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> AdamState:
        """Return the state of spheres that were never stepped."""
        return AdamState(
            torch.zeros(rows, capacity, dtype=dtype, device=device),
            torch.zeros(rows, capacity, dtype=dtype, device=device),
            torch.zeros(capacity, dtype=torch.int32, device=device),
        )


def adam_reference(
    parameters: torch.Tensor,
    gradient: torch.Tensor,
    state: AdamState,
    learning_rates: torch.Tensor,
    count: int,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-15,
) -> AdamCounts:
    """Step the first ``count`` spheres in place and set their gradient to zero: the specification.

    Args:
        parameters: (rows, capacity), any floating type.
        gradient: (rows, capacity).
        state: moments of the same shape, and step counts.
        learning_rates: (rows,).
        count: live columns.
        betas: decay of the first and second moment.
        epsilon: added to the root of the second moment.
    """
    g = gradient[:, :count]
    touched = (g != 0).any(dim=0)  # (count,)
    finite = (g.abs() < MAX_GRADIENT).all(dim=0)
    columns = (touched & finite).nonzero().squeeze(1)  # (stepped,)
    g = g[:, columns]
    state.steps[columns] += 1
    t = state.steps[columns].to(g.dtype)
    m = betas[0] * state.first_moment[:, columns] + (1 - betas[0]) * g
    v = betas[1] * state.second_moment[:, columns] + (1 - betas[1]) * g**2
    m_corrected = m / (1 - betas[0] ** t)
    v_corrected = v / (1 - betas[1] ** t)
    parameters[:, columns] -= learning_rates[:, None] * m_corrected / (v_corrected.sqrt() + epsilon)
    state.first_moment[:, columns] = m
    state.second_moment[:, columns] = v
    gradient[:, :count] = 0
    return AdamCounts(len(columns), int((touched & ~finite).sum()))


class SphereAdam:
    """The native optimiser, for float32 tensors; it computes what ``adam_reference`` says.

    The result is the same to the byte for any number of threads.
    """

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-15,
        device: torch.device | str = "cpu",
    ) -> None:
        """Raise NativeError unless the betas are in [0, 0.9999] and epsilon is positive."""
        self._plan = Plan("Adam", device, beta1=betas[0], beta2=betas[1], epsilon=epsilon)

    def step(
        self,
        parameters: torch.Tensor,
        gradient: torch.Tensor,
        state: AdamState,
        learning_rates: torch.Tensor,
        count: int,
    ) -> AdamCounts:
        """Step the first ``count`` spheres in place and set their gradient to zero.

        Shapes as in ``adam_reference``; all float32, contiguous, on the device. Raises NativeError
        otherwise.
        """
        stepped, skipped = self._plan.call(
            "step",
            parameters=parameters,
            gradient=gradient,
            first_moment=state.first_moment,
            second_moment=state.second_moment,
            steps=state.steps,
            learning_rates=learning_rates,
            count=count,
        )
        return AdamCounts(stepped, skipped)
