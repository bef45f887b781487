"""Rigid motions: properties that must hold for every motion, near zero and near a half turn too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from gsslam import geometry

vectors = arrays(np.float64, 3, elements=st.floats(-3, 3))


@st.composite
def directions(draw: st.DrawFn) -> np.ndarray:
    v = draw(arrays(np.float64, 3, elements=st.floats(-1, 1)))
    length = np.linalg.norm(v)
    return v / length if length > 1e-3 else np.array([0.0, 0.6, 0.8])


# Down to where the series take over and up to a half turn, both ends included.
angles = st.one_of(
    st.floats(0, np.pi),
    st.floats(-12, 0).map(lambda e: 10.0**e),
    st.floats(-12, -1).map(lambda e: np.pi - 10.0**e),
    st.sampled_from([0.0, 1e-4, np.nextafter(1e-4, 1), np.pi]),
)


@st.composite
def twists(draw: st.DrawFn) -> np.ndarray:
    return np.concatenate([draw(vectors), draw(angles) * draw(directions())])


def homogeneous(xi: np.ndarray) -> np.ndarray:
    generator = np.zeros((4, 4))
    generator[:3, :3], generator[:3, 3] = geometry.hat(xi[3:]), xi[:3]
    return generator


@given(vectors, vectors)
def test_hat_is_the_cross_product(a: np.ndarray, b: np.ndarray) -> None:
    assert np.allclose(geometry.hat(a) @ b, np.cross(a, b), atol=1e-14)


@given(twists())
def test_exponential_is_the_matrix_exponential(xi: np.ndarray) -> None:
    assert np.allclose(geometry.exp_se3(xi), expm(homogeneous(xi)), rtol=0, atol=1e-10)


@given(twists())
def test_logarithm_undoes_the_exponential(xi: np.ndarray) -> None:
    T = geometry.exp_se3(xi)
    again = geometry.log_se3(T)
    assert np.linalg.norm(again[3:]) <= np.pi + 1e-12
    assert np.allclose(geometry.exp_se3(again), T, rtol=0, atol=1e-9)
    if np.linalg.norm(xi[3:]) < np.pi - 1e-6:  # at a half turn both signs are right
        assert np.allclose(again, xi, rtol=0, atol=1e-8)


@given(directions(), st.floats(1e-12, 1e-3))
def test_small_rotations_keep_all_digits(axis: np.ndarray, angle: float) -> None:
    R = geometry.exp_se3(np.concatenate([np.zeros(3), angle * axis]))[:3, :3]
    assert np.linalg.norm(geometry.log_so3(R) - angle * axis) < 1e-15 + 1e-12 * angle


@given(twists(), vectors)
def test_inverse(xi: np.ndarray, point: np.ndarray) -> None:
    T = geometry.exp_se3(xi)
    assert np.allclose(geometry.inverse(T) @ T, np.eye(4), atol=1e-13)
    assert np.allclose(geometry.inverse(T), geometry.exp_se3(-xi), atol=1e-11)
    stack = np.stack([T, T @ T])
    assert np.array_equal(geometry.inverse(stack)[1], geometry.inverse(stack[1]))


@given(twists())
def test_quaternions_are_those_of_scipy_and_go_round(xi: np.ndarray) -> None:
    R = geometry.exp_se3(xi)[:3, :3]
    q = geometry.quaternion_from_matrix(R)
    assert q[3] >= 0
    assert abs(np.linalg.norm(q) - 1) < 1e-14
    assert abs(abs(q @ Rotation.from_matrix(R).as_quat()) - 1) < 1e-12
    assert np.allclose(geometry.matrix_from_quaternion(q), R, atol=1e-12)
    assert np.allclose(geometry.matrix_from_quaternion(-3 * q), R, atol=1e-12)


@given(twists(), arrays(np.float64, (3, 3), elements=st.floats(-1e-3, 1e-3)))
def test_orthonormalized_is_a_rotation_nearby(xi: np.ndarray, noise: np.ndarray) -> None:
    T = geometry.exp_se3(xi)
    bent = T.copy()
    bent[:3, :3] += noise
    straight = geometry.orthonormalized(bent)
    R = straight[:3, :3]
    assert np.allclose(R @ R.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(R) > 0
    # Nearest of all: nearer than the rotation that was bent.
    assert np.linalg.norm(R - bent[:3, :3]) <= np.linalg.norm(noise) + 1e-14
    assert np.array_equal(straight[:3, 3], T[:3, 3])
    assert np.allclose(geometry.orthonormalized(T), T, atol=1e-14)


@given(twists(), twists())
def test_moved_applies_the_motion_last_and_stays_rigid(xi: np.ndarray, step: np.ndarray) -> None:
    T = geometry.exp_se3(xi)
    moved = geometry.moved(T, step)
    assert np.allclose(moved, geometry.exp_se3(step) @ T, atol=1e-13)
    assert np.allclose(moved[:3, :3] @ moved[:3, :3].T, np.eye(3), atol=1e-15 * 4)


def test_orthonormalized_never_mirrors() -> None:
    mirrored = np.diag([1.0, 1.0, -1.0, 1.0])
    assert np.linalg.det(geometry.orthonormalized(mirrored)[:3, :3]) == pytest.approx(1)
