"""The measured size of the projection's approximations, and that the documentation states it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.projection_error import (
    ANGLES,
    ewa_covariance,
    focal_rows,
    footprint_error,
    off_axis_rows,
    scalar_covariance,
)


@pytest.mark.parametrize("angle", ANGLES)
def test_the_linearised_projection_is_the_sphere_s_silhouette(angle: int) -> None:
    # The cone that touches a sphere meets the image in an ellipse, known in closed form.
    theta, radius = np.deg2rad(angle), 1e-3
    point = np.array([np.sin(theta), 0, np.cos(theta)])
    touching = np.arcsin(radius)
    right, left = np.tan(theta + touching), np.tan(theta - touching)
    across = np.sin(touching) / np.sqrt(np.cos(theta) ** 2 - np.sin(touching) ** 2)
    expected = np.diag([((right - left) / 2) ** 2, across**2]) * 500**2
    assert ewa_covariance(point, radius, 500, 500) == pytest.approx(expected, rel=1e-5)


def test_the_linearised_projection_is_the_spread_of_projected_points() -> None:
    rng = np.random.default_rng(0)
    point, radius = np.array([0.5, -0.3, 1.2]), 0.01
    points = point[:, None] + radius * rng.normal(size=(3, 200_000))
    spread = np.cov(np.stack([500 * points[0] / points[2], 510 * points[1] / points[2]]))
    assert ewa_covariance(point, radius, 500, 510) == pytest.approx(spread, abs=0.15)


def test_footprint_error_is_the_integral_over_an_image() -> None:
    point = np.array([0.6, 0.2, 1.0])
    exact = ewa_covariance(point, 0.02, 500, 505)
    ours = scalar_covariance(point, 0.02, 500, 505)
    offsets = np.stack(np.meshgrid(np.arange(-80, 81), np.arange(-80, 81)), axis=-1)

    def image(covariance: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(covariance)
        return np.exp(-0.5 * np.einsum("...i,ij,...j->...", offsets, inverse, offsets))

    difference = np.linalg.norm(image(ours) - image(exact)) / np.linalg.norm(image(exact))
    assert footprint_error(ours, exact) == pytest.approx(difference, rel=1e-6)
    assert footprint_error(exact, exact) == 0


def test_the_documentation_states_what_is_measured() -> None:
    text = (Path(__file__).parents[2] / "docs" / "conventions.md").read_text(encoding="utf-8")
    for row in [*off_axis_rows(), *focal_rows()]:
        assert row in text
