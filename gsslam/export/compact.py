"""The map in about eleven bytes a sphere: what a NumPy archive of small integers holds.

Spheres are sorted along a Z-curve (Morton, 1966) and cut into blocks, so that those of a block lie
close together. Each attribute of a block is stored as a whole number of steps above the block's
least value: 16 bits for a coordinate, 8 for radius (logarithm), opacity and colours.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gsslam.errors import DatasetError
from gsslam.files import atomic_path
from gsslam.results import SphereState

# Spheres in a block.
_BLOCK = 256
# Bits of a coordinate that decide the order along the curve.
_CURVE_BITS = 16
_VERSION = 1
# Columns: x, y, z; log radius, opacity, red, green, blue.
_COORDINATES, _OTHERS = 3, 5

Floats = NDArray[np.float64]


def write_compact(state: SphereState, path: Path) -> None:
    """Write the spheres to ``path`` (.npz), in another order; raises OutputError."""
    opacity = 1 / (1 + np.exp(-state.opacity_logit.astype(np.float64)))
    values = np.column_stack([state.xyz, state.log_radius, opacity, state.rgb])  # (N, 8)
    values = values[_order_along_curve(values[:, :_COORDINATES])]
    low, step = _ranges(values)
    each = np.arange(len(values)) // _BLOCK
    steps = np.rint((values - low[each]) / step[each])
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            version=np.array(_VERSION),
            low=low,
            step=step,
            # Column by column, high and low bytes apart: what is alike is close together.
            position=_split_bytes(steps[:, :_COORDINATES].T.astype(np.uint16)),
            other=steps[:, _COORDINATES:].T.astype(np.uint8),
        )


def read_compact(path: Path) -> SphereState:
    """Return the spheres in ``path``; raises DatasetError where it is missing or something else."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if int(archive["version"]) != _VERSION:
                raise ValueError(f"version {archive['version']} is unknown")
            position, other = _join_bytes(archive["position"]), archive["other"]
            low, step = archive["low"].astype(np.float64), archive["step"].astype(np.float64)
        steps = np.concatenate([position, other]).T.astype(np.float64)  # (N, 8)
        each = np.arange(len(steps)) // _BLOCK
        values = low[each] + steps * step[each]
    except OSError as error:
        raise DatasetError(f"cannot read the map {path}: {error.strerror or error}") from error
    except (KeyError, ValueError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} is no compact map: {error}") from error
    opacity = np.clip(values[:, 4], 1e-6, 1 - 1e-6)
    return SphereState(
        xyz=values[:, :3].astype(np.float32),
        log_radius=values[:, 3].astype(np.float32),
        opacity_logit=np.log(opacity / (1 - opacity)).astype(np.float32),
        rgb=values[:, 5:].astype(np.float32),
    )


def _ranges(values: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the least value of each block and column, and the step that covers its range."""
    starts = np.arange(0, len(values), _BLOCK)
    if len(values) == 0:
        return (np.zeros((0, values.shape[1]), np.float32),) * 2
    low = np.minimum.reduceat(values, starts).astype(np.float32)
    high = np.maximum.reduceat(values, starts)
    most = np.array([2**16 - 1] * _COORDINATES + [2**8 - 1] * _OTHERS)
    # A little more than the range, since the least value was rounded to 32 bits.
    step = ((high - low) / most * (1 + 1e-6) + 1e-12).astype(np.float32)
    return np.minimum(low, np.nextafter(low, np.float32(-np.inf))), step


def _order_along_curve(xyz: Floats) -> NDArray[np.int64]:
    """Return the order of points (N, 3) along a Z-curve through their box."""
    if len(xyz) == 0:
        return np.zeros(0, np.int64)
    low = xyz.min(axis=0)
    scale = (2**_CURVE_BITS - 1) / max(float(np.ptp(xyz, axis=0).max()), 1e-12)
    cells = ((xyz - low) * scale).astype(np.uint64)
    key = np.zeros(len(xyz), np.uint64)
    for bit in range(_CURVE_BITS):
        for axis in range(3):
            key |= ((cells[:, axis] >> np.uint64(bit)) & np.uint64(1)) << np.uint64(3 * bit + axis)
    return np.argsort(key, kind="stable")


def _split_bytes(values: NDArray[np.uint16]) -> NDArray[np.uint8]:
    return np.stack([values >> 8, values & 255]).astype(np.uint8)


def _join_bytes(parts: NDArray[np.uint8]) -> NDArray[np.uint16]:
    joined: NDArray[np.uint16] = 256 * parts[0].astype(np.uint16) + parts[1]
    return joined
