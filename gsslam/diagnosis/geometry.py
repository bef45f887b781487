"""Do poses, depth and calibration agree with the motion that the images show?

Corners with a measured depth are moved by the given poses and projected; the distance to where the
images show them is the residual. Where it is large, single causes are tried in turn: the one that
explains it is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.diagnosis.finding import Finding
from gsslam.diagnosis.tracks import Tracks
from gsslam.geometry import inverse

Array = NDArray[np.float64]

# A median residual of more image widths, and of a larger share of the median motion, is too large.
_TOLERANCE, _SHARE_OF_MOTION = 0.003, 0.15
# A cause is named that brings it down to that, and below this share of what it was.
_EXPLAINED = 0.5
# So does a smaller residual tell, over this many image widths, if one cause all but removes it.
_PRECISE_TOLERANCE, _ALL_BUT_REMOVED = 0.0015, 0.25
# Depths are hardly ever off by less; a focal length is.
_LEAST_SCALE = 1.7
# Without a cause, so much of the motion must be unexplained.
_UNEXPLAINED = 0.5
# Corners and motion (image widths) without which nothing can be said.
_LEAST_CORNERS, _LEAST_MOTION = 60, 0.006
# A point behind the camera, or far outside, is this far off (image widths).
_LOST = 2.0


@dataclass(frozen=True)
class Matches:
    """Corners of several pairs of frames with their depth, and the motion between the frames."""

    from_pixels: Array  # (N, 2)
    to_pixels: Array  # (N, 2)
    depth: Array  # (N,) metres
    # (N, 4, 4) poses of the two frames, camera points to world points.
    T_world_first: Array
    T_world_second: Array
    # (N,) counts the pairs of frames.
    pair: NDArray[np.int64]

    @staticmethod
    def of(tracks: Sequence[Tracks]) -> Matches:
        """Collect the corners that have a depth, of pairs whose poses are known."""
        parts: list[tuple[NDArray[Any], ...]] = []
        for pair in tracks:
            first, second = pair.first.T_world_camera, pair.second.T_world_camera
            if first is None or second is None:
                continue
            column, row = np.floor(pair.from_pixels).astype(int).T
            depth = pair.first.depth[row, column].astype(np.float64)
            seen = np.isfinite(depth) & (depth > 0)
            poses = (np.broadcast_to(T, (seen.sum(), 4, 4)) for T in (first, second))
            pixels = pair.from_pixels[seen], pair.to_pixels[seen]
            parts.append((*pixels, depth[seen], *poses, np.full(seen.sum(), len(parts))))
        if not parts:
            points, poses_of_none = np.empty((0, 2)), np.empty((0, 4, 4))
            none = np.empty(0)
            return Matches(points, points, none, poses_of_none, poses_of_none, none.astype(int))
        return Matches(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def of_pairs(self, chosen: NDArray[np.bool_]) -> Matches:
        """Return the matches where ``chosen`` (N,) is true."""
        return Matches(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def motion(self) -> float:
        """Return the median motion in pixels."""
        return float(np.median(np.linalg.norm(self.to_pixels - self.from_pixels, axis=1)))


def residuals(matches: Matches, camera: Camera, scale: float = 1.0) -> Array:
    """Return how far (N,) in pixels each corner lies from where depth times ``scale`` puts it."""
    focal, centre = np.array([camera.fx, camera.fy]), np.array([camera.cx, camera.cy])
    z = scale * matches.depth[:, None]
    points = np.concatenate([(matches.from_pixels - centre) / focal * z, z, np.ones_like(z)], 1)
    T_second_first = inverse(matches.T_world_second) @ matches.T_world_first
    moved = np.einsum("nij,nj->ni", T_second_first, points)
    depth = np.where(moved[:, 2] > 1e-6, moved[:, 2], np.nan)[:, None]
    difference = moved[:, :2] / depth * focal + centre - matches.to_pixels
    distance: Array = np.linalg.norm(difference, axis=1)
    return np.fmin(distance, _LOST * camera.width)


def check_geometry(
    matches: Matches, camera: Camera, depth_scale: float | None = None
) -> Finding | None:
    """Name what keeps poses, depth and calibration from agreeing with the images, if anything.

    ``depth_scale`` is the value of a depth image at one metre where that is known.
    """
    if not can_be_checked(matches, camera):
        return None
    now = _typical(matches, camera)
    if now <= _PRECISE_TOLERANCE * camera.width:
        return None
    tolerance = max(_TOLERANCE * camera.width, _SHARE_OF_MOTION * matches.motion())
    causes: list[tuple[float, Finding]] = [
        _wrong_scale(matches, camera, depth_scale),
        _wrong_intrinsics(matches, camera),
        _inverted_poses(matches, camera),
        _other_axes(matches, camera),
    ]
    remaining, finding = min(causes, key=lambda cause: cause[0])
    share = _EXPLAINED if now > tolerance else _ALL_BUT_REMOVED
    if remaining <= min(share * now, tolerance):
        return finding
    if now <= max(tolerance, _UNEXPLAINED * matches.motion()):
        return None
    return Finding(
        "poses",
        f"poses, depth and calibration do not agree with the images: corners lie {now:.1f} pixels "
        f"(median) from where they should be, of {matches.motion():.1f} pixels of motion, and no "
        "single cause explains it",
        "check that the poses belong to these images and this camera (clock, frame numbers, "
        "camera-to-world) and that intrinsics and depth scale are those of the sensor",
    )


def can_be_checked(matches: Matches, camera: Camera) -> bool:
    """Tell whether there are poses, corners and motion enough to judge."""
    enough = len(matches.depth) >= _LEAST_CORNERS
    return enough and matches.motion() >= _LEAST_MOTION * camera.width


def _typical(matches: Matches, camera: Camera, scale: float = 1.0) -> float:
    return float(np.median(residuals(matches, camera, scale)))


def _wrong_scale(
    matches: Matches, camera: Camera, depth_scale: float | None
) -> tuple[float, Finding]:
    larger = np.concatenate([np.geomspace(_LEAST_SCALE, 12, 40), np.geomspace(700, 1500, 20)])
    coarse = _best_scale(matches, camera, np.concatenate([larger, 1 / larger]))
    best = _best_scale(matches, camera, coarse * np.geomspace(1 / 1.06, 1.06, 25))
    factor = usual(max(best, 1 / best), (5.0, 1000.0))
    wrong, mend = ("large", "multiply") if best < 1 else ("small", "divide")
    fix = f"{mend} the depth scale by {factor:g}"
    if depth_scale is not None:
        fix = f"set the depth scale to {common_scale(depth_scale / best):g} (it is {depth_scale:g})"
    finding = Finding(
        "depth-scale",
        f"depths are about {factor:g} times too {wrong}: only so corrected do they fit the images "
        "and the given poses",
        f"{fix}; if depth is right, the poses are not in metres",
    )
    return _typical(matches, camera, best), finding


def _best_scale(matches: Matches, camera: Camera, scales: Array) -> float:
    return float(scales[int(np.argmin([_typical(matches, camera, s) for s in scales]))])


def common_scale(scale: float) -> float:
    """Return the usual depth scale near ``scale``, else ``scale`` to two digits."""
    return usual(scale, (1.0, 256.0, 1000.0, 4000.0, 5000.0, 6553.5, 10000.0))


def usual(value: float, choices: Sequence[float]) -> float:
    """Return the one of ``choices`` that is near ``value``, else ``value`` to two digits."""
    near = [choice for choice in choices if 0.85 < value / choice < 1.18]
    return near[0] if near else float(f"{value:.2g}")


def _wrong_intrinsics(matches: Matches, camera: Camera) -> tuple[float, Finding]:
    fitted = fit_intrinsics(matches, camera)
    finding = Finding(
        "intrinsics",
        f"intrinsics do not fit: with the given poses the images fit fx {fitted.fx:.0f}, "
        f"fy {fitted.fy:.0f}, cx {fitted.cx:.0f}, cy {fitted.cy:.0f} better than "
        f"{camera.fx:.0f}, {camera.fy:.0f}, {camera.cx:.0f}, {camera.cy:.0f} "
        f"(at {camera.width}x{camera.height})",
        "use the calibration of the camera that took the images, at the size of these images; "
        "the fitted values are only a hint",
    )
    return _transferred(matches, camera, fitted), finding


def _transferred(matches: Matches, camera: Camera, fitted: Camera) -> float:
    """Return what remains with intrinsics that were fitted to the other half of the pairs.

    Four numbers may explain what is wrong with one pair; only true ones explain the others too.
    """
    is_even = matches.pair % 2 == 0
    halves = [matches.of_pairs(is_even), matches.of_pairs(~is_even)]
    if min(len(half.depth) for half in halves) < _LEAST_CORNERS:
        return _typical(matches, fitted)
    crossed = zip(halves, reversed(halves), strict=True)
    return max(_typical(a, fit_intrinsics(b, camera)) for a, b in crossed)


def fit_intrinsics(matches: Matches, camera: Camera, steps: int = 12) -> Camera:
    """Return the camera that fits best: robust Gauss-Newton from several focal lengths."""
    starts = [
        replace(camera, fx=camera.fx * factor, fy=camera.fy * factor)
        for factor in (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
    ]
    fitted = [_refined(matches, start, steps) for start in starts]
    return min([camera, *fitted], key=lambda one: _typical(matches, one))


def _refined(matches: Matches, camera: Camera, steps: int) -> Camera:
    """Step fx, fy, cx and cy; derivatives by differences, weights by Cauchy."""
    for _ in range(steps):
        r = residuals(matches, camera)
        values = np.array([camera.fx, camera.fy, camera.cx, camera.cy])
        delta = 0.01 * camera.width
        columns = [
            (residuals(matches, _with(camera, values + delta * unit)) - r) / delta
            for unit in np.eye(4)
        ]
        J = np.stack(columns, axis=1)  # (N, 4)
        w = 1 / (1 + (r / max(float(np.median(r)), 0.1)) ** 2)
        H = (J * w[:, None]).T @ J
        # The principal point hardly shows in many motions: it stays where it is then.
        H += np.diag(1e-3 * np.diag(H) + 1e-6 * len(r))
        step = -np.linalg.solve(H, J.T @ (w * r))
        moved = values + np.clip(step, -0.15 * camera.width, 0.15 * camera.width)
        if min(moved[:2]) < 0.1 * camera.width:
            break
        camera = _with(camera, moved)
    return camera


def _with(camera: Camera, values: Array) -> Camera:
    fx, fy, cx, cy = (float(value) for value in values)
    return Camera(camera.width, camera.height, fx, fy, cx, cy)


def _inverted_poses(matches: Matches, camera: Camera) -> tuple[float, Finding]:
    inverted = replace(
        matches,
        T_world_first=inverse(matches.T_world_first),
        T_world_second=inverse(matches.T_world_second),
    )
    finding = Finding(
        "poses",
        "poses are the wrong way round: the images fit their inverses",
        "give poses that map camera points to world points",
    )
    return _typical(inverted, camera), finding


def _other_axes(matches: Matches, camera: Camera) -> tuple[float, Finding]:
    flip = np.diag([1.0, -1.0, -1.0, 1.0])
    turned = replace(
        matches,
        T_world_first=matches.T_world_first @ flip,
        T_world_second=matches.T_world_second @ flip,
    )
    finding = Finding(
        "poses",
        "poses are in OpenGL's camera axes (y up, z backward): the images fit once they are turned",
        "multiply each pose from the right by diag(1, -1, -1, 1)",
    )
    return _typical(turned, camera), finding
