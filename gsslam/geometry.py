"""Rigid motions in float64: SE(3) exponential and logarithm, quaternions, orthonormalisation.

Twists are ordered (translation, rotation): xi = (v, omega). Source: Barfoot, State Estimation for
Robotics (2017), equations 7.85 to 7.97; the left Jacobian of SO(3) is its equation 7.77.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Below this angle (radians) the closed forms lose digits and their Taylor series are exact enough.
_SMALL_ANGLE = 1e-4


def hat(omega: Array) -> Array:
    """Return the (3, 3) matrix W with W @ p = cross(omega, p)."""
    x, y, z = omega
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=np.float64)


def _rotation_coefficients(angle: float) -> tuple[float, float, float]:
    """Return sin(a)/a, (1-cos(a))/a^2 and (a-sin(a))/a^3."""
    if angle < _SMALL_ANGLE:
        a2 = angle * angle
        return 1 - a2 / 6, 0.5 - a2 / 24, 1 / 6 - a2 / 120
    return (
        np.sin(angle) / angle,
        (1 - np.cos(angle)) / angle**2,
        (angle - np.sin(angle)) / angle**3,
    )


def exp_se3(xi: Array) -> Array:
    """Return the (4, 4) motion of the twist ``xi`` (6,): translation first, metres and radians."""
    v, omega = np.asarray(xi[:3], dtype=np.float64), np.asarray(xi[3:], dtype=np.float64)
    a, b, c = _rotation_coefficients(float(np.linalg.norm(omega)))
    W = hat(omega)
    T = np.eye(4)
    T[:3, :3] += a * W + b * (W @ W)
    T[:3, 3] = v + b * (W @ v) + c * (W @ (W @ v))
    return T


def log_so3(R: Array) -> Array:
    """Return the rotation vector (3,) of ``R`` (3, 3), of angle at most pi."""
    x, y, z, w = quaternion_from_matrix(R)
    sine = float(np.sqrt(x * x + y * y + z * z))
    if sine < 1e-12:
        return 2 * np.array([x, y, z])
    return float(2 * np.arctan2(sine, w) / sine) * np.array([x, y, z])


def log_se3(T: Array) -> Array:
    """Return the twist (6,) whose exponential is ``T`` (4, 4)."""
    omega = log_so3(T[:3, :3])
    _, b, c = _rotation_coefficients(float(np.linalg.norm(omega)))
    W = hat(omega)
    left_jacobian = np.eye(3) + b * W + c * (W @ W)
    return np.concatenate([np.linalg.solve(left_jacobian, T[:3, 3]), omega])


def inverse(T: Array) -> Array:
    """Return the inverse of the rigid motion ``T`` (..., 4, 4)."""
    R_transposed = np.swapaxes(T[..., :3, :3], -1, -2)
    result = np.zeros_like(T)
    result[..., :3, :3] = R_transposed
    result[..., :3, 3] = -np.einsum("...ij,...j->...i", R_transposed, T[..., :3, 3])
    result[..., 3, 3] = 1
    return result


def quaternion_from_matrix(R: Array) -> Array:
    """Return the unit quaternion (x, y, z, w), w >= 0, of the rotation ``R`` (3, 3).

    Takes the best conditioned of the four forms (Shepperd 1978).
    """
    trace = np.trace(R)
    weights = np.array([*np.diag(R), trace])
    k = int(np.argmax(weights))
    q = np.empty(4)
    if k == 3:
        q[3] = 1 + trace
        q[:3] = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    else:
        i, j, m = k, (k + 1) % 3, (k + 2) % 3
        q[i] = 1 + 2 * R[i, i] - trace
        q[j] = R[j, i] + R[i, j]
        q[m] = R[m, i] + R[i, m]
        q[3] = R[m, j] - R[j, m]
    q /= np.linalg.norm(q)
    return q if q[3] >= 0 else -q


def matrix_from_quaternion(q: Array) -> Array:
    """Return the rotations (..., 3, 3) of quaternions (..., 4) (x, y, z, w) of any length but 0."""
    q = np.asarray(q, dtype=np.float64)
    x, y, z, w = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    return np.moveaxis(R, (0, 1), (-2, -1))


def moved(T: Array, xi: Array) -> Array:
    """Return exp(xi) T with a rotation that is exactly one again.

    Rounding errors must not live on: a pose enters the next one several times (velocity, pose
    relative to a keyframe), so that they would double from frame to frame.
    """
    return orthonormalized(exp_se3(xi) @ T)


def orthonormalized(T: Array) -> Array:
    """Return ``T`` (4, 4) with its rotation replaced by the nearest true one (Frobenius norm)."""
    u, _, vt = np.linalg.svd(T[:3, :3])
    result = np.eye(4)
    result[:3, :3] = u @ np.diag([1, 1, np.linalg.det(u @ vt)]) @ vt
    result[:3, 3] = T[:3, 3]
    return result
