"""The map as an SPZ file (Niantic's compressed Gaussian splats), through the gsply package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gsslam.export.ply import HARMONIC_0
from gsslam.extras import require
from gsslam.files import atomic_path
from gsslam.results import SphereState


def write_spz(state: SphereState, path: Path) -> None:
    """Write the spheres to ``path``; raises ConfigError where gsply is not installed.

    SPZ keeps positions to a quarter of a millimetre.
    """
    gsply = require("gsply", "spz", "writing SPZ files")
    n = len(state)
    quaternions = np.zeros((n, 4), np.float32)
    quaternions[:, 0] = 1
    data = gsply.GSData(
        means=state.xyz,
        scales=np.repeat(state.log_radius[:, None], 3, axis=1),
        quats=quaternions,
        opacities=state.opacity_logit,
        sh0=((state.rgb - np.float32(0.5)) / np.float32(HARMONIC_0)).astype(np.float32),
        shN=np.zeros((n, 0, 3), np.float32),
    )
    with atomic_path(path) as temporary:
        gsply.write_spz(temporary, data)
