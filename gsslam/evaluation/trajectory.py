"""Errors of a trajectory against ground truth: absolute (ATE) and relative (RPE).

Sturm et al., A Benchmark for the Evaluation of RGB-D SLAM Systems (IROS 2012), sections IV.A and
IV.B. Both are root-mean-square over all poses given; nothing is left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gsslam.geometry import inverse
from gsslam.trajectory import nearest_within

Array = NDArray[np.float64]

# Two poses count as one second apart when their distance in time is this close to it.
_SECOND_TOLERANCE = 0.1


def align_se3(estimate: Array, truth: Array) -> Array:
    """Return the (4, 4) rigid motion that best maps ``estimate`` (N, 3) onto ``truth`` (N, 3).

    Least squares without scale: Umeyama (PAMI 1991), equations 38 to 42 with c = 1. Where the
    points leave the rotation open (fewer than three, or all on a line), one of the best is taken.
    """
    mean_estimate, mean_truth = estimate.mean(axis=0), truth.mean(axis=0)
    covariance = (truth - mean_truth).T @ (estimate - mean_estimate)  # (3, 3)
    u, _, vt = np.linalg.svd(covariance)
    # The sign keeps a proper rotation where the best orthogonal matrix is a reflection.
    R = u @ np.diag([1.0, 1.0, np.sign(np.linalg.det(u) * np.linalg.det(vt))]) @ vt
    T = np.eye(4)
    T[:3, :3] = R
    T[:3, 3] = mean_truth - R @ mean_estimate
    return T


def aligned(estimate: Array, truth: Array) -> Array:
    """Return the poses ``estimate`` (N, 4, 4) moved as a whole onto ``truth`` (N, 4, 4)."""
    return align_se3(estimate[:, :3, 3], truth[:, :3, 3]) @ estimate


def position_errors(estimate: Array, truth: Array) -> Array:
    """Return the (N,) distances in metres between the positions of two lists of poses (N, 4, 4).

    ``estimate`` is aligned first; the root mean square of these is the ATE.
    """
    positions = aligned(estimate, truth)[:, :3, 3]
    return np.asarray(np.linalg.norm(positions - truth[:, :3, 3], axis=1))


def relative_errors(estimate: Array, truth: Array, pairs: NDArray[np.intp]) -> tuple[Array, Array]:
    """Return translation errors (M,) in metres and rotation errors (M,) in radians over ``pairs``.

    ``pairs`` (M, 2) holds indices into the poses (N, 4, 4): the motion between the two is compared.
    """
    first, second = pairs[:, 0], pairs[:, 1]
    motion_estimate = inverse(estimate[first]) @ estimate[second]
    motion_truth = inverse(truth[first]) @ truth[second]
    error = inverse(motion_truth) @ motion_estimate
    translation = np.linalg.norm(error[:, :3, 3], axis=1)
    return np.asarray(translation), rotation_angles(error[:, :3, :3])


def rotation_angles(R: Array) -> Array:
    """Return the (M,) angles in radians, 0 to pi, of the rotations ``R`` (M, 3, 3).

    The arc tangent of sine and cosine keeps its digits near 0 and near pi, where the arc cosine of
    the trace alone would lose half of them.
    """
    axis = np.stack(
        [R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]], axis=1
    )
    trace = np.trace(R, axis1=1, axis2=2)
    return np.asarray(np.arctan2(np.linalg.norm(axis, axis=1), trace - 1))


def successive_pairs(count: int) -> NDArray[np.intp]:
    """Return the (count - 1, 2) pairs of each pose and the next."""
    first = np.arange(max(count - 1, 0), dtype=np.intp)
    return np.stack([first, first + 1], axis=1)


def second_pairs(timestamps: Array) -> NDArray[np.intp]:
    """Return the (M, 2) pairs of poses one second apart, for ``timestamps`` (N,) in seconds.

    Each pose is paired with the one nearest to a second later; it goes without where the nearest is
    more than a tenth of a second off.
    """
    nearest = nearest_within(timestamps + 1.0, timestamps, _SECOND_TOLERANCE)
    first = np.flatnonzero(nearest >= 0)
    return np.stack([first, nearest[first]], axis=1).astype(np.intp)


def root_mean_square(values: Array) -> float:
    """Return the root of the mean square of ``values`` (N,), N > 0."""
    return float(np.sqrt(np.mean(np.square(values))))
