"""Can the depths be metres, and do their edges lie where the colours' are?"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.diagnosis.finding import Finding
from gsslam.diagnosis.geometry import common_scale
from gsslam.frame import Frame

# Metres. Depth cameras measure hardly anything nearer or farther than the first two; a scene's
# median depth lies between the others.
_NEAREST, _FARTHEST = 0.25, 10.0
_MEDIAN_NEAR, _MEDIAN_FAR = 0.45, 5.0
# A scene that ends here is a table's top or an object at most: rare, but possible.
_WITHIN_REACH = 1.0
_FACTORS = (5.0, 1000.0, 1 / 5, 1 / 1000)

# Neighbouring depths that differ by more than this share belong to two surfaces.
_EDGE_STEP = 0.08
# Shifts of depth against colour that are tried, and those that are too large (image widths).
_WIDEST_SHIFT, _LARGEST_SHIFT = 0.06, 0.018
# A peak must stand out by so much over the mean of all shifts, and over no shift.
_PEAK, _BETTER = 1.25, 1.1
# Fewer edge pixels in all frames say nothing.
_LEAST_EDGES = 2000


def check_depth_range(
    depths: Sequence[NDArray[np.float32]], depth_scale: float | None = None
) -> Finding | None:
    """Name depths (H, W), metres, that no depth camera measures in a scene.

    ``depth_scale`` is the value of a depth image at one metre where that is known.
    """
    measured = [depth[np.isfinite(depth) & (depth > 0)] for depth in depths]
    values = np.concatenate([m[::7] for m in measured]) if measured else np.empty(0)
    if not len(values):
        return None
    near, median, far = np.percentile(values, [5, 50, 95])
    impossible = (near < _NEAREST and median < _MEDIAN_NEAR) or far > _FARTHEST
    if not impossible and far >= _WITHIN_REACH:
        return None
    fix = _likely_scale(median, depth_scale)
    if impossible:
        what = f"depths are hardly metres: most lie between {near:.2g} and {far:.2g}, the median is"
        return Finding(
            "depth-scale",
            f"{what} {median:.2g}",
            f"{fix}; ignore this if the scene is as near or as far as that",
        )
    return Finding(
        "depth-scale",
        f"everything lies between {near:.2g} and {far:.2g} m, which only a close scan of something "
        "small does",
        f"if this is a room, {fix}",
        is_problem=False,
    )


def _likely_scale(median: float, depth_scale: float | None) -> str:
    """Return what would give a scene's depths a usual ``median``, metres."""
    likely = [f for f in _FACTORS if 2 * _MEDIAN_NEAR < median * f < _MEDIAN_FAR]
    if likely and depth_scale is not None:
        scale = common_scale(depth_scale / likely[0])
        return f"set the depth scale to {scale:g} (it is {depth_scale:g})"
    if likely:
        return f"multiply depths by {likely[0]:g}"
    return "check the depth scale: the value of a depth image at one metre"


def check_registration(frames: Sequence[Frame]) -> Finding | None:
    """Name a shift between the edges of depth and those of colour."""
    found = edge_shift(frames)
    if found is None:
        return None
    x, y = found
    if np.hypot(x, y) <= _LARGEST_SHIFT * frames[0].camera.width:
        return None
    sides = [(x, "left", "right"), (y, "up", "down")]
    where = " and ".join(f"{abs(d)} pixels further {a if d > 0 else b}" for d, a, b in sides if d)
    return Finding(
        "registration",
        f"colour and depth do not lie on each other: depth's edges appear {where} than colour's",
        "give the depth camera's intrinsics and its pose against the colour camera (camera.yaml: "
        "depth_camera and T_color_depth), or export depth aligned to colour",
    )


def edge_shift(frames: Sequence[Frame]) -> tuple[int, int] | None:
    """Return by how many pixels (x, y) depth must move to meet colour; None where that is unclear.

    The strength of colour's edges is summed over the pixels of depth's edges, for every shift.
    """
    if not frames:
        return None
    reach = round(_WIDEST_SHIFT * frames[0].camera.width)
    total, count = np.zeros((2 * reach + 1, 2 * reach + 1)), 0
    for frame in frames:
        edges = depth_edges(frame.depth)
        edges[:reach], edges[-reach:], edges[:, :reach], edges[:, -reach:] = 0, 0, 0, 0
        inner = edges[reach:-reach, reach:-reach].astype(np.float32)
        if inner.any():
            total += cv2.matchTemplate(_colour_edges(frame.rgb), inner, cv2.TM_CCORR)
            count += int(inner.sum())
    if count < _LEAST_EDGES:
        return None
    row, column = np.unravel_index(int(np.argmax(total)), total.shape)
    peak = float(total[row, column])
    if peak < _PEAK * total.mean() or peak < _BETTER * total[reach, reach]:
        return (0, 0) if peak >= _PEAK * total.mean() else None
    return int(column) - reach, int(row) - reach


def depth_edges(depth: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return the pixels (H, W) of surfaces that end in front of another one.

    Gaps are filled with the farthest of the measurements to their left, right, top and bottom: they
    are the shadow that the nearer surface casts on the farther one.
    """
    filled = np.maximum(_filled_along_rows(depth), _filled_along_rows(depth.T).T)
    z = cv2.medianBlur(filled, 3)
    edges = np.zeros(z.shape, dtype=bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        across, down = z[:, 1:] / z[:, :-1], z[1:] / z[:-1]
    edges[:, :-1] |= across > 1 + _EDGE_STEP
    edges[:, 1:] |= across < 1 / (1 + _EDGE_STEP)
    edges[:-1] |= down > 1 + _EDGE_STEP
    edges[1:] |= down < 1 / (1 + _EDGE_STEP)
    return edges & (z > 0)


def _filled_along_rows(depth: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill gaps with the farther of the nearest measurements on either side; 0 if there is none."""
    sides = []
    for step in (1, -1):
        z = np.nan_to_num(depth[:, ::step], nan=0.0, posinf=0.0)
        columns = np.where(z > 0, np.arange(z.shape[1]), 0)
        nearest = np.maximum.accumulate(columns, axis=1)
        sides.append(np.take_along_axis(z, nearest, axis=1)[:, ::step])
    return np.maximum(*sides)


def _colour_edges(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the strength (H, W) of the edges, limited so that no single one leads."""
    grey = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (0, 0), 1.0).astype(np.float32)
    strength = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    limit = float(np.percentile(strength, 95)) + 1e-6
    return np.minimum(strength / limit, 1).astype(np.float32)
