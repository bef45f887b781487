"""Size of a run's map in each file format, and what the quantised ones cost in PSNR.

Run: python -m scripts.map_formats --run runs/tum/fr1_xyz/latest
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from tyro.conf import arg

from gsslam.evaluation.images import score_view
from gsslam.export import read_compact, read_ply, write_compact, write_ply, write_spz
from gsslam.export.ply import HARMONIC_0
from gsslam.results import SphereState
from gsslam.run import make_slam
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.trajectory import Trajectory


@dataclass
class Options:
    """Which run, and how many of its frames are scored."""

    run: Annotated[Path, arg(help_behavior_hint="")]
    every: int = 8
    device: str = "cpu"


def read_spz(path: Path) -> SphereState:
    """Return the spheres of an SPZ file."""
    import gsply

    data = gsply.read_spz(path)
    return SphereState(
        xyz=np.asarray(data.means, np.float32),
        log_radius=np.asarray(data.scales, np.float32).mean(axis=1),
        opacity_logit=np.asarray(data.opacities, np.float32).reshape(-1),
        rgb=(0.5 + HARMONIC_0 * np.asarray(data.sh0)).reshape(-1, 3).astype(np.float32),
    )


_FORMATS = (
    ("map.ply", write_ply, read_ply),
    ("map.npz", write_compact, read_compact),
    ("map.spz", write_spz, read_spz),
)


def main() -> None:
    """Write the run's map in every format, read it back, render it, and print the table."""
    options = tyro.cli(Options, description=__doc__)
    folder = RunFolder(options.run)
    config, about = folder.read_config()
    dataset = Source.from_values(about).open()
    seen = [record for record in folder.read_frames() if record.status != "skipped"]
    trajectory = Trajectory.read(folder.trajectory)
    slam = make_slam(config, dataset.camera, options.device)
    state = read_ply(folder.map)
    chosen = range(options.every - 1, len(seen), options.every)
    frames = [dataset[seen[position].index] for position in chosen]
    print("| file | MB | bytes a sphere | PSNR raw / fitted, dB |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        for name, write, read in _FORMATS:
            path = Path(temporary) / name
            write(state, path)
            slam.map.load(read(path))
            views = [slam.render(trajectory.T_world_camera[position]) for position in chosen]
            scores = [score_view(view, frame) for view, frame in zip(views, frames, strict=True)]
            raw = np.mean([score.psnr_db for score in scores])
            fitted = np.mean([score.psnr_exposure_db for score in scores])
            size = path.stat().st_size
            columns = f"{size / 1e6:.2f} | {size / len(state):.1f} | {raw:.3f} / {fitted:.3f}"
            print(f"| {name} | {columns} |")


if __name__ == "__main__":
    main()
