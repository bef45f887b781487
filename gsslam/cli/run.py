"""``gsslam run``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from gsslam.cli.console import ProgressReport, print_result
from gsslam.cli.status import INTERRUPTED, SUCCESS
from gsslam.config import SlamConfig
from gsslam.device import resolve_device
from gsslam.errors import ConfigError
from gsslam.presets import load_preset, preset_for
from gsslam.source import Source, parse_resolution

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset
    from gsslam.observer import Observer
    from gsslam.run import RunResult

_AUTO_PRESET = "auto"


@dataclass(frozen=True)
class Run:
    """Turn an RGB-D sequence into a trajectory, a map and metrics.

    Ctrl-C ends the run early and keeps the results up to there; --resume goes on with it.

    Results (in runs/DATASET/TIME, to which runs/DATASET/latest points):
      trajectory.txt  the pose of every frame, in TUM's format
      map.ply         the map, for any Gaussian splat viewer; map.npz a sixth of its size
      features.safetensors  what --features learned, for `gsslam query`
      metrics.json    the numbers; frames.jsonl has them frame by frame
      plots           trajectory against ground truth; input and render; memory over time
      config.yaml     every value of the configuration; log.txt says what happened

    Examples of use:
      gsslam run
      gsslam run --dataset tum/fr1_xyz --resolution 320x240 --preset cpu
      gsslam run --dataset tum/fr1_desk --path ~/data/rgbd_dataset_freiburg1_desk
      gsslam run --dataset 7scenes/redkitchen --features
      gsslam run --resume runs/tum/fr1_xyz/latest
      gsslam run --dataset replica/room0 --data-root ~/data
      gsslam run --dataset ~/recordings/kitchen.bag
      gsslam run --dataset live/realsense --max-frames 900
      gsslam run --dataset folder --path ~/my_scan --max-frames 200 --tracking.iterations 8
    """

    # Sequence: a name or a format from `gsslam datasets list`, the path of a recording, or a live
    # camera such as live/realsense, which is recorded (into --path, if that is given).
    dataset: Annotated[str, arg(metavar="ID")] = "synthetic/room"
    # File or folder of the sequence, if it was not downloaded by gsslam.
    path: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Folder below which datasets lie, to find the sequence in.
    data_root: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Folder for the results, new or empty. Default: runs/DATASET/TIME.
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Where to compute; auto takes the GPU where there is a usable one.
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # Named configuration (default, fast, quality, cpu ...) or a YAML file, such as a run's
    # config.yaml; auto takes the one of the dataset's family, if there is one.
    preset: Annotated[str, arg(metavar="NAME")] = _AUTO_PRESET
    # Stop after this many frames. Default: all.
    max_frames: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    # Take every K-th frame.
    stride: Annotated[int, arg(metavar="K")] = 1
    # Size of the images that SLAM sees, such as 320x240. Default: that of the dataset.
    resolution: Annotated[str | None, arg(metavar="WxH", help_behavior_hint="")] = None
    # 2: reading, tracking and mapping have threads of their own; 1: they take turns. The result is
    # the same.
    threads: Literal[1, 2] = 2
    # Follow the sensor's clock, as with a live camera: frames for which there is no time are
    # dropped, and the result depends on the computer's speed.
    realtime: bool = False
    # Save the whole state every N frames, so that a run that was killed can be resumed; 0: never.
    checkpoint_every: Annotated[int, arg(metavar="N")] = 200
    # Go on with an unfinished run from its last checkpoint; everything else is taken from there.
    resume: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    # Write trace.json, which shows in chrome://tracing what each thread did when.
    trace: bool = False
    # Render and score every frame in the end; `gsslam eval RUN` can do it later.
    evaluate: bool = True
    # Most memory for images and map, such as 512MB; the lowest scores and the least useful
    # keyframes go before it is passed. Default: the preset's map.memory_budget_mb.
    memory_budget: Annotated[str | None, arg(metavar="SIZE", help_behavior_hint="")] = None
    # Show the run in the browser while it goes on; it changes nothing in the result.
    viewer: bool = False
    # Port of the viewer; 0 takes any free one.
    viewer_port: Annotated[int, arg(metavar="PORT")] = 8080
    # Address that the viewer listens on; 0.0.0.0 lets other computers look.
    viewer_host: Annotated[str, arg(metavar="HOST")] = "127.0.0.1"
    # Learn features with the map, so that `gsslam query` can search it; the trajectory and the map
    # are the same without. Which encoder: --features.teacher.
    features: bool = False
    # Every value of the configuration, over the preset.
    config: Annotated[SlamConfig, arg(name="")] = field(default_factory=SlamConfig)

    def execute(self) -> int:
        """Run, print progress and the table of results; return the exit status."""
        with ProgressReport() as progress, self._viewer(progress) as viewer:
            start = self._start if self.resume is None else self._go_on
            result = start(progress, viewer)
        print_result(result)
        return INTERRUPTED if result.interrupted else SUCCESS

    @contextlib.contextmanager
    def _viewer(self, progress: ProgressReport) -> Iterator[Observer | None]:
        """Yield the viewer, if it is wanted, while it serves."""
        if not self.viewer:
            yield None
            return
        from gsslam.viewer import LiveViewer

        with LiveViewer(self.viewer_host, self.viewer_port) as viewer:
            progress.note(f"The run is shown at {viewer.address}")
            yield viewer

    def _start(self, progress: ProgressReport, viewer: Observer | None) -> RunResult:
        if self.checkpoint_every < 0:
            raise ConfigError(f"--checkpoint-every {self.checkpoint_every} must be 0 or more")
        device = resolve_device(self.device)
        # Here, so that --help and wrong arguments are answered without loading torch.
        from gsslam.run import RunOptions, run_dataset
        from gsslam.run_folder import new_run_path, point_latest_to
        from gsslam.tracking_loop import LoopOptions

        with contextlib.ExitStack() as stack:
            dataset, source = self._open_live(stack) if self._is_live else self._open()
            out = self.out or new_run_path(Path("runs"), dataset.name)
            loop = LoopOptions(self.threads, self.realtime, self.checkpoint_every)
            result = run_dataset(
                *(dataset, self.resolved_config(), out),
                options=RunOptions(device, loop, self.trace, self.evaluate),
                source=source,
                on_progress=progress.update,
                observer=viewer,
            )
        if self.out is None:
            point_latest_to(out)
        return result

    def _open(self) -> tuple[Dataset, Source]:
        from gsslam.datasets.registry import resolve

        name, path = resolve(self.dataset, self.path, self.data_root)
        source = Source(
            dataset=name,
            path=path,
            resolution=self._size(),
            max_frames=self.max_frames,
            stride=self.stride,
            seed=self.config.seed,
        )
        return source.open(), source

    def _open_live(self, stack: contextlib.ExitStack) -> tuple[Dataset, Source]:
        """Start a camera, whose frames are recorded; the recording is the run's dataset later."""
        from gsslam.datasets.live import LiveSequence, open_camera
        from gsslam.run_folder import new_run_path

        if self.max_frames is None or self.max_frames < 1:
            raise ConfigError(
                "a live camera needs --max-frames N, the most to take: Ctrl-C ends it"
            )
        if self.realtime or self.stride != 1 or self.data_root is not None:
            raise ConfigError("--realtime, --stride and --data-root are for recorded sequences")
        folder = self.path or new_run_path(Path("recordings"), self.dataset)
        camera = open_camera(self.dataset, self._size())
        stack.callback(camera.stop)
        dataset = stack.enter_context(LiveSequence(camera, folder, self.max_frames))
        name = f"tum/{folder.resolve().name}"
        return dataset, Source(name, folder, max_frames=self.max_frames, seed=self.config.seed)

    @property
    def _is_live(self) -> bool:
        return self.dataset.startswith("live/")

    def _size(self) -> tuple[int, int] | None:
        return None if self.resolution is None else parse_resolution(self.resolution)

    def _go_on(self, progress: ProgressReport, viewer: Observer | None) -> RunResult:
        given = [
            option.name
            for option in fields(self)
            if option.name not in ("resume", "config", "viewer", "viewer_port", "viewer_host")
            and getattr(self, option.name) != option.default
        ]
        if given:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise ConfigError(f"--resume takes everything from the run's folder: leave out {flags}")
        from gsslam.run import resume_run

        assert self.resume is not None
        return resume_run(self.resume, on_progress=progress.update, observer=viewer)

    def resolved_config(self) -> SlamConfig:
        """Return the configuration with what the flags beside it say."""
        config = self.config
        if self.features:
            config = replace(config, features=replace(config.features, enabled=True))
        if self.memory_budget is None:
            return config
        from gsslam.memory import parse_megabytes

        budget = parse_megabytes(self.memory_budget)
        return replace(config, map=replace(config.map, memory_budget_mb=budget))


def run_defaults(arguments: list[str]) -> Run:
    """Return the defaults of ``run``: those of the preset that ``arguments`` name.

    The preset is looked for before the rest is parsed, since it decides the defaults that the help
    shows and that single values override. Raises ConfigError where there is no such preset.
    """
    preset = _argument(arguments, "--preset") or Run.preset
    dataset = _argument(arguments, "--dataset") or Run.dataset
    if Path(dataset).expanduser().exists():
        from gsslam.datasets.registry import family_of

        dataset = family_of(dataset)
    name = preset_for(dataset) if preset == _AUTO_PRESET else preset
    return Run(preset=preset, config=load_preset(name))


def _argument(arguments: list[str], flag: str) -> str:
    """Return what follows ``flag`` in the command line, or nothing."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return ""
