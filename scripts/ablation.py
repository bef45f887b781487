"""What pruning, the memory budget and spheres each do: one table and one plot.

Run: python -m scripts.ablation --sequence /path/to/tum_fr1_xyz --out runs/ablation

Every variant and seed is a run of its own in a process of its own, so that memory can be compared;
a run that is finished is not repeated, so that the command may be stopped and given again. The
gsplat variants need CUDA and the gsplat package; elsewhere they are left out.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tyro.conf import arg

from gsslam.bench.job import plain_name
from gsslam.bench.table import (
    BUDGET,
    HELDOUT_PSNR,
    MAP_SIZE,
    MEMORY,
    PSNR,
    SPEED,
    Column,
    table_of_runs,
)
from gsslam.config import SlamConfig
from gsslam.datasets import open_dataset
from gsslam.files import atomic_path
from gsslam.presets import load_preset
from gsslam.run import RunOptions, SlamFactory, run_dataset
from gsslam.source import Source, parse_resolution
from gsslam.tracking_loop import LoopOptions

# Judgements in a row that no run ever reaches: scores are kept, but decide only who makes room.
_NEVER = 1_000_000
_SPHERE_BYTES, _ELLIPSOID_BYTES = 16, 40
# Allocations of torch and of our kernels after a run, whose buffers never shrink.
_GPU_MEMORY = "gpu_mb"


@dataclass
class Options:
    """What is run, and where the results go."""

    sequence: Annotated[Path, arg(help_behavior_hint="")]
    out: Path = Path("runs/ablation")
    dataset: str = "tum/fr1_xyz"
    device: str = "cpu"
    preset: str = "default"
    resolution: str = "320x240"
    max_frames: int | None = None
    stride: int = 1
    seeds: int = 1
    # Spheres at which the pruning criteria are compared with each other.
    equal_spheres: int = 24_000
    # Most spheres elsewhere.
    capacity: int = 500_000
    # Memory budgets, 10^6 bytes.
    budgets: tuple[float, ...] = (512.0, 256.0, 128.0)
    # Only these variants; all where empty.
    variants: tuple[str, ...] = ()
    # Run this variant alone, in this process: for the command's own use.
    single: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Variant:
    """A change of the configuration, and of the primitive."""

    change: dict[str, dict[str, Any]]
    # Rows of a primitive for gsplat's rasteriser; 0 takes ours.
    gsplat_rows: int = 0


def variants(options: Options) -> dict[str, Variant]:
    """Return what is compared, by name."""
    off = {"judgements": 0, "min_opacity": 0.0}
    faint = {"pruning": {"judgements": 0}}
    room: dict[str, Any] = {"judgements": _NEVER}
    capacity = {"capacity": options.equal_spheres}

    def equal(**pruning: float) -> Variant:
        return Variant({"pruning": {**room, **pruning}, "map": capacity})

    found = {
        "pruning off": Variant({"pruning": off}),
        "pruning (full score)": Variant({}),
        "equal: opacity": equal(contribution_weight=0.0, error_weight=0.0, opacity_weight=1.0),
        "equal: contribution": equal(error_weight=0.0),
        "equal: high error goes": equal(contribution_weight=0.0, error_weight=1.0),
        "equal: low error goes": equal(contribution_weight=0.0, error_weight=-1.0),
        "equal: contribution, high error goes": equal(error_weight=0.25),
        "equal: full score": equal(),
        "spheres, ours": Variant(faint),
        "spheres, gsplat": Variant(faint, 8),
        "ellipsoids, gsplat": Variant(faint, 14),
    }
    for budget in options.budgets:
        found[f"budget {budget:g} MB"] = Variant({"map": {"memory_budget_mb": budget}})
    chosen = {k: v for k, v in found.items() if not options.variants or k in options.variants}
    return chosen if options.device == "cuda" else _without_gsplat(chosen)


def _without_gsplat(found: dict[str, Variant]) -> dict[str, Variant]:
    return {name: variant for name, variant in found.items() if not variant.gsplat_rows}


def configuration(options: Options, variant: Variant) -> SlamConfig:
    """Return the preset with the variant's changes."""
    config = load_preset(options.preset)
    config = replace(config, seed=options.seed, map=replace(config.map, capacity=options.capacity))
    for section, values in variant.change.items():
        changed = replace(getattr(config, section), **values)
        config = replace(config, **{section: changed})
    return config


def run_single(options: Options) -> None:
    """Run one variant with one seed and write its metrics."""
    variant = variants(replace(options, variants=()))[options.single]
    source = Source(
        options.dataset,
        options.sequence,
        parse_resolution(options.resolution),
        options.max_frames,
        options.stride,
        options.seed,
    )
    dataset = source.open()
    config, folder = configuration(options, variant), folder_of(options, options.single)
    factory: SlamFactory | None = None
    if variant.gsplat_rows:
        from scripts.ellipsoids import GsplatSlam

        def factory(config: SlamConfig, camera: Any, device: str, **options: Any) -> GsplatSlam:
            return GsplatSlam(config, camera, device, rows=variant.gsplat_rows, **options)

    before = _gpu_used_mb(options.device)
    shutil.rmtree(folder, ignore_errors=True)
    run_dataset(
        *(dataset, config, folder),
        options=RunOptions(options.device, LoopOptions(checkpoint_every=0)),
        source=source,
        slam_factory=factory,
    )
    mapping = config.mapping
    with atomic_path(folder / "extra.json") as path:
        values = {
            _GPU_MEMORY: _gpu_used_mb(options.device) - before,
            "iteration_ms": _iteration_ms(folder, mapping.iterations),
        }
        path.write_text(json.dumps(values))


def _gpu_used_mb(device: str) -> float:
    if device != "cuda":
        return 0.0
    import torch

    free, total = torch.cuda.mem_get_info()
    return (total - free) / 1e6


def _iteration_ms(folder: Path, iterations: int) -> float:
    """Return the median time of a mapping step of a keyframe, insertion and pruning included.

    The first keyframe, which takes other numbers of steps, is left out.
    """
    records = [json.loads(line) for line in (folder / "frames.jsonl").read_text().splitlines()]
    times = [record["mapping_ms"] for record in records if record["mapping_ms"]][1:]
    return statistics.median(times) / iterations if times else 0.0


def folder_of(options: Options, name: str) -> Path:
    """Return where a variant's run with the options' seed lies."""
    return options.out / plain_name(name) / f"seed{options.seed}"


def run_all(options: Options) -> None:
    """Run what is missing, each in a process of its own."""
    for name in variants(options):
        for seed in range(options.seeds):
            one = replace(options, seed=seed)
            if (folder_of(one, name) / "extra.json").exists():
                continue
            print(f"{name}, seed {seed}", flush=True)
            command = [sys.executable, "-m", "scripts.ablation", *sys.argv[1:]]
            subprocess.run([*command, "--single", name, "--seed", str(seed)], check=True)


_COLUMNS = (
    *PSNR,
    *HELDOUT_PSNR,
    Column.of("ATE, cm", "ate_rmse_cm", 3),
    Column.of("primitives", "spheres", 0),
    MAP_SIZE,
    Column("geometry, MB", lambda m: m["spheres"] * m["primitive_bytes"] / 1e6, 2),
    BUDGET,
    MEMORY,
    Column.of("GPU, MB", _GPU_MEMORY, 0),
    Column.of("step, ms", "iteration_ms", 2),
    SPEED,
)


def results(options: Options) -> dict[str, list[dict[str, Any]]]:
    """Return the metrics of each variant's finished runs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, variant in variants(options).items():
        size = _ELLIPSOID_BYTES if variant.gsplat_rows == 14 else _SPHERE_BYTES
        for seed in range(options.seeds):
            folder = folder_of(replace(options, seed=seed), name)
            if not (folder / "extra.json").exists():
                continue
            metrics = json.loads((folder / "metrics.json").read_text())
            extra = json.loads((folder / "extra.json").read_text())
            found.setdefault(name, []).append({**metrics, **extra, "primitive_bytes": size})
    return found


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the results as Markdown: the mean over the seeds, and their standard deviation."""
    return table_of_runs("", "variant", found, _COLUMNS).markdown()


def plot(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw quality over the number of primitives, and over memory."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    panels = figure.subplots(1, 2)
    axes_of = (("spheres", "primitives"), ("peak_budget_mb", "memory that the budget counts (MB)"))
    for axes, (key, label) in zip(panels, axes_of, strict=True):
        for name, runs in found.items():
            x = statistics.mean(run[key] for run in runs)
            y = statistics.mean(run["psnr_exposure_db"] for run in runs)
            axes.plot(x, y, "o", label=name)
        axes.set(xlabel=label, ylabel="PSNR, all frames, exposure fitted (dB)")
        axes.grid(alpha=0.3)
    panels[1].legend(fontsize=8, loc="lower right")
    FigureCanvasAgg(figure)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=100)


def main() -> None:
    """Run what is missing, then write the table and the plot."""
    options = tyro.cli(Options, description=__doc__)
    if options.single:
        run_single(options)
        return
    open_dataset(options.dataset, options.sequence)  # a clear error before anything is run
    run_all(options)
    found = results(options)
    if found:
        (options.out / "table.md").write_text(table(found))
        plot(found, options.out / "ablation.png")
        print(table(found))


if __name__ == "__main__":
    main()
