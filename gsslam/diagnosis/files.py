"""What names, time stamps and poses say before any image is looked at."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.datasets.folder import natural_key
from gsslam.diagnosis.finding import Finding

_DECIMAL = re.compile(r"\d+\.\d+")
_NUMBER = re.compile(r"\d+")
# A pause this many times as long as the usual one is a gap.
_GAP = 10.0
# Rotations may be off by so much from orthonormal; 7-Scenes' are by 4e-4.
_ROTATION_ERROR = 1e-2


def check_readable(unreadable: Mapping[int, str], tried: int) -> Finding | None:
    """Name frames that could not be read, by their index and the reason."""
    if not unreadable:
        return None
    index, reason = next(iter(unreadable.items()))
    return Finding(
        "images",
        f"{len(unreadable)} of {tried} frames cannot be used; frame {index}: {reason}",
        "copy or export these files again; a run skips them, if they are few",
    )


def check_names(colour: Sequence[str], depth: Sequence[str]) -> Finding | None:
    """Name what is wrong with file names (without folders) from which order and pairs are taken.

    Both lists are in the order in which the frames are used.
    """
    stems = [name.rpartition(".")[0] for name in colour]
    if not all(_NUMBER.search(stem) for stem in stems):
        return Finding(
            "names",
            f"file names such as {colour[0]} have no number: their order in time is unknown",
            "name the files by number or time stamp, zero-padded, in the order of recording",
        )
    if all(map(_DECIMAL.fullmatch, stems)):
        return _check_decimals(stems)
    last = [[_NUMBER.findall(name.rpartition(".")[0])[-1:] for name in n] for n in (colour, depth)]
    for index, pair in enumerate(zip(*last, strict=False)):
        numbers = [int(found[0]) if found else None for found in pair]
        if numbers[0] != numbers[1]:
            return Finding(
                "names",
                f"colour and depth are paired by position, which pairs {colour[index]} with "
                f"{depth[index]}",
                "remove images without a partner, or name both by time stamps in seconds",
            )
    if sorted(colour) != sorted(colour, key=lambda name: natural_key(Path(name))):
        return Finding(
            "names",
            f"numbers in file names are not zero-padded ({colour[0]} ... {colour[-1]}): gsslam "
            "takes them in the order of their numbers, other programs may not",
            "rename them with leading zeros for use elsewhere",
            is_problem=False,
        )
    return None


def _check_decimals(stems: Sequence[str]) -> Finding | None:
    times = [float(stem) for stem in stems]
    for earlier, later in itertools.pairwise(stems):
        if float(later) <= float(earlier):
            reason = f"{earlier} comes before {later}"
            break
    else:
        return None
    padded = "write all fractions with the same number of digits"
    return Finding(
        "timestamps",
        f"file names are time stamps but do not increase ({reason}), so that they are not used",
        f"{padded}, and name every image by the time at which it was taken "
        f"(they span {max(times) - min(times):.1f} s)",
    )


def check_timestamps(times: Sequence[float], first: int = 0) -> Finding | None:
    """Name times (seconds) that are missing, shuffled or far apart; frames count from ``first``."""
    t = np.asarray(times, dtype=np.float64)
    missing = int((~np.isfinite(t)).sum())
    if missing:
        return Finding(
            "timestamps",
            f"{missing} of {len(t)} frames have no time stamp",
            "give every frame the time in seconds at which it was taken",
        )
    steps = np.diff(t)
    if (steps <= 0).any():
        index = int(np.argmax(steps <= 0))
        return Finding(
            "timestamps",
            f"time stamps are shuffled: frame {first + index + 1} ({t[index + 1]:.6f} s) is not "
            f"later than frame {first + index} ({t[index]:.6f} s)",
            "sort the frames by time, and give no two the same one",
        )
    if len(steps) and steps.max() > _GAP * np.median(steps):
        index = int(np.argmax(steps))
        return Finding(
            "timestamps",
            f"time stamps are missing: {steps.max():.2f} s lie between frames {first + index} "
            f"and {first + index + 1}, {np.median(steps):.3f} s as a rule",
            "look for frames that were lost in recording or copying; tracking may be lost there",
        )
    return None


def check_poses(poses: Sequence[NDArray[np.float64]]) -> Finding | None:
    """Name poses (4, 4) that are no rigid motions."""
    for index, T in enumerate(poses):
        if not np.isfinite(T).all():
            return Finding(
                "poses",
                f"pose {index} is NaN or infinite",
                "leave frames without a pose out of the file of poses",
            )
        R = T[:3, :3]
        error = float(np.abs(R @ R.T - np.eye(3)).max())
        if error > _ROTATION_ERROR or np.linalg.det(R) < 0:
            return Finding(
                "poses",
                f"pose {index} is no rigid motion: its rotation is off by {error:.2g} from "
                "orthonormal, or mirrors",
                "give rotations as unit quaternions (x, y, z, w) or as rotation matrices without "
                "scale",
            )
    return None
