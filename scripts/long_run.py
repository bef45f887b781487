"""Play a sequence forth and back for thousands of frames: memory and speed must stay flat.

Run: python -m scripts.long_run --sequence /path/to/tum_fr1_xyz --out runs/long
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tyro.conf import arg

from gsslam.camera import Camera
from gsslam.datasets import open_dataset
from gsslam.datasets.base import Dataset
from gsslam.errors import DatasetError
from gsslam.files import atomic_path
from gsslam.frame import Frame
from gsslam.presets import load_preset
from gsslam.report import Progress
from gsslam.run import RunOptions, run_dataset
from gsslam.source import parse_resolution
from gsslam.tracking_loop import LoopOptions
from gsslam.trajectory import Trajectory

# Frames over which the speed is compared, at the start and at the end.
_COMPARED = 500


@dataclass
class Options:
    """What is run."""

    sequence: Annotated[Path, arg(help_behavior_hint="")]
    out: Path = Path("runs/long")
    dataset: str = "tum/fr1_xyz"
    device: str = "cpu"
    preset: str = "default"
    resolution: str = "160x120"
    frames: int = 5000
    # Frames of the sequence that are played.
    part: int | None = None
    # 10^6 bytes.
    memory_budget: float = 40.0
    # Frames before the speed counts: the map is still empty, files are not in memory yet.
    warm_up: int = 500


class ForthAndBack(Dataset):
    """A dataset played forwards, backwards, forwards ... as a sequence of ``length`` frames."""

    def __init__(self, dataset: Dataset, length: int) -> None:
        self._dataset = dataset
        self._length = length
        first, last = dataset[0].timestamp, dataset[len(dataset) - 1].timestamp
        self._interval = (last - first) / max(len(dataset) - 1, 1)
        self._start = first

    @property
    def name(self) -> str:
        """Name of the sequence that is played."""
        return self._dataset.name

    @property
    def camera(self) -> Camera:
        """The sequence's camera."""
        return self._dataset.camera

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """Seconds, (N,), at even intervals."""
        steps: NDArray[np.float64] = np.arange(self._length, dtype=np.float64)
        return self._start + self._interval * steps

    @property
    def ground_truth(self) -> Trajectory | None:
        """None: it is in the frames."""
        return None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Frame:
        """Read a frame; time goes on, whichever way the sequence is played."""
        if not 0 <= index < self._length:
            raise IndexError(index)
        frame = self._dataset[played_index(index, len(self._dataset))]
        return replace(frame, index=index, timestamp=self._start + index * self._interval)


def played_index(index: int, length: int) -> int:
    """Return which of ``length`` frames comes at a position; the frames at both ends come once."""
    if length < 2:
        return 0
    position = index % (2 * (length - 1))
    return position if position < length else 2 * (length - 1) - position


def resident_mb() -> float:
    """Return the memory of this process now, in 10^6 bytes; 0 where that is not to be found."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * 4096 / 1e6


def run(options: Options) -> Path:
    """Run and return a JSON file of what was sampled after each frame."""
    sequence = open_dataset(
        options.dataset,
        options.sequence,
        resolution=parse_resolution(options.resolution),
        max_frames=options.part,
    )
    config = load_preset(options.preset)
    config = replace(config, map=replace(config.map, memory_budget_mb=options.memory_budget))
    resident: list[float] = []
    cpu: list[float] = []

    def sample(progress: Progress) -> None:
        if progress.step != "tracking":
            return
        resident.append(resident_mb())
        cpu.append(time.process_time())
        if progress.done % _COMPARED == 0:
            print(f"{progress.done} frames, {resident[-1]:.0f} MB", file=sys.stderr, flush=True)

    dataset = ForthAndBack(sequence, options.frames)
    run = RunOptions(options.device, LoopOptions(checkpoint_every=0), evaluate=False)
    run_dataset(dataset, config, options.out, options=run, on_progress=sample)
    path = options.out / "samples.json"
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps({"resident_mb": resident, "cpu_s": cpu}))
    return path


def report(options: Options) -> str:
    """Draw the plot and return the numbers; raises DatasetError where the budget was passed."""
    lines = (options.out / "frames.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    samples = json.loads((options.out / "samples.json").read_text())
    resident = np.array(samples["resident_mb"])
    cpu_ms = 1000 * np.diff(samples["cpu_s"], prepend=0.0)
    memory = np.array([record["memory_mb"] for record in records])
    wall = np.array([record["loop_ms"] for record in records])
    warm = options.warm_up
    first, last = slice(warm, warm + _COMPARED), slice(-_COMPARED, None)
    speeds = [1000 / wall[part].mean() for part in (first, last)]
    # On a machine that others use too, processor time tells more than the clock.
    costs = [cpu_ms[part].mean() for part in (first, last)]
    plot(options, memory, resident, wall, np.array([record["spheres"] for record in records]))
    if memory.max() > options.memory_budget:
        raise DatasetError(f"{memory.max():.1f} MB pass the budget {options.memory_budget:g} MB")
    lost = sum(record["status"] == "lost" for record in records)
    return (
        f"{len(records)} frames, {lost} lost; counted at most {memory.max():.1f} MB of"
        f" {options.memory_budget:g}; process {resident[warm]:.0f} MB after {warm} frames,"
        f" {resident[-1]:.0f} MB at the end, at most {resident.max():.0f}; frames/s of the first"
        f" {_COMPARED} after {warm}: {speeds[0]:.2f}, of the last: {speeds[1]:.2f}"
        f" ({100 * (speeds[1] / speeds[0] - 1):+.1f} %); processor time a frame: {costs[0]:.1f} and"
        f" {costs[1]:.1f} ms ({100 * (costs[1] / costs[0] - 1):+.1f} %)"
    )


def plot(
    options: Options,
    memory: NDArray[np.float64],
    resident: NDArray[np.float64],
    wall: NDArray[np.float64],
    spheres: NDArray[np.float64],
) -> None:
    """Draw memory, spheres and speed over the frames."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    top.plot(memory, label="what the budget counts")
    top.plot(resident - resident[0], label="growth of the process since the first frame")
    top.axhline(options.memory_budget, color="black", linestyle="--", label="budget")
    top.set(ylabel="MB", ylim=(0, None))
    top.legend(fontsize=8, loc="lower right")
    middle.plot(spheres, color="tab:green")
    middle.set(ylabel="spheres", ylim=(0, None))
    window = np.ones(min(_COMPARED, len(wall))) / min(_COMPARED, len(wall))
    mean = np.convolve(wall, window, mode="valid")
    bottom.plot(np.arange(len(mean)) + len(window), 1000 / mean, color="tab:red")
    bottom.set(ylabel=f"frames/s, last {len(window)} frames", xlabel="frame", ylim=(0, None))
    for axes in (top, middle, bottom):
        axes.grid(alpha=0.3)
    FigureCanvasAgg(figure)
    with atomic_path(options.out / "long_run.png") as path:
        figure.savefig(path, dpi=100)


def main() -> None:
    """Run where there is no result yet; report."""
    options = tyro.cli(Options, description=__doc__)
    if not (options.out / "samples.json").exists():
        run(options)
    print(report(options))


if __name__ == "__main__":
    main()
