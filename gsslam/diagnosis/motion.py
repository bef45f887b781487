"""Do the frames follow each other, and slowly enough?"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from gsslam.diagnosis.finding import Finding
from gsslam.diagnosis.tracks import Tracks

# Between two frames, image widths; the tracker's coarsest level reaches about as far.
_FASTEST = 0.06
# Of the corners found again: under this share two frames have next to nothing in common.
_LEAST_SHARE = 0.3
# Frames out of order make a path that is this much longer than the shortest tree through them.
_LONGEST_PATH = 1.6
_THUMBNAIL = (40, 30)


def check_overlap(tracks: Sequence[Tracks]) -> Finding | None:
    """Name frames that have nothing in common; ``tracks`` are those between neighbours."""
    shares = [pair.share for pair in tracks]
    if not shares or np.median(shares) >= _LEAST_SHARE:
        return None
    worst = tracks[int(np.argmin(shares))]
    return Finding(
        "overlap",
        f"neighbouring frames show different things: of the corners of a frame only "
        f"{np.median(shares):.0%} are found again in the next one; worst between frames "
        f"{worst.first.index} and {worst.second.index}",
        "take more frames (a smaller stride, a higher frame rate) or move the camera more slowly; "
        "if they were taken one after the other, they are out of order: see to their names",
    )


def check_speed(tracks: Sequence[Tracks]) -> Finding | None:
    """Name motion that is too fast to be tracked; ``tracks`` are those between neighbours."""
    flows = np.array([pair.flow for pair in tracks])
    if not len(flows) or np.mean(flows > _FASTEST) <= 0.25:
        return None
    worst = tracks[int(np.argmax(flows))]
    return Finding(
        "speed",
        f"the camera moves too fast: the image moves by up to {flows.max():.0%} of its width from "
        f"one frame to the next (frames {worst.first.index} and {worst.second.index}); tracking "
        f"is reliable up to about {_FASTEST:.0%}",
        "use every frame (stride 1), record at a higher frame rate, or move more slowly",
    )


def check_order(images: Sequence[NDArray[np.uint8]]) -> Finding | None:
    """Name consecutive images (H, W, 3) that would follow each other better in another order."""
    if len(images) < 5:
        return None
    small = np.stack([_thumbnail(image) for image in images])
    distance = np.abs(small[:, None] - small[None]).mean(axis=(2, 3))  # (N, N)
    path = float(np.diagonal(distance, 1).sum())
    shortest = _tree_length(distance)
    if path <= _LONGEST_PATH * shortest:
        return None
    return Finding(
        "order",
        f"frames are not in the order in which they were taken: from one to the next the images "
        f"change {path / shortest:.1f} times as much as they would in a better order",
        "name the files by number or time stamp, zero-padded, in the order of recording",
    )


def _thumbnail(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    grey = cv2.resize(
        cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), _THUMBNAIL, None, 0, 0, cv2.INTER_AREA
    )
    return grey.astype(np.float32)


def _tree_length(distance: NDArray[np.floating]) -> float:
    """Return the length of the shortest tree through all points (Prim 1957)."""
    reach = distance[0].astype(np.float64)
    reach[0], total = np.inf, 0.0
    outside = np.ones(len(distance), dtype=bool)
    outside[0] = False
    while outside.any():
        nearest = int(np.argmin(np.where(outside, reach, np.inf)))
        total += float(reach[nearest])
        outside[nearest] = False
        reach = np.minimum(reach, distance[nearest])
    return total
