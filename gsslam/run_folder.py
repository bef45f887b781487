"""The folder that a run leaves behind, and how it comes to be."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gsslam.config import SlamConfig
from gsslam.errors import ConfigError, DatasetError, GsslamError, OutputError
from gsslam.evaluation.records import FrameRecord
from gsslam.files import TEMPORARY_PATTERN, atomic_path
from gsslam.presets import RUN_SECTION, config_from_values, config_to_yaml
from gsslam.results import Metric

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def new_run_path(root: Path, dataset: str, now: datetime | None = None) -> Path:
    """Return a path ``root/<dataset>/<time>`` that does not exist yet."""
    name = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
    path = root / dataset / name
    count = 1
    while path.exists():
        count += 1
        path = root / dataset / f"{name}-{count}"
    return path


def point_latest_to(run: Path) -> None:
    """Make the link ``latest`` beside ``run`` point to it, in one step."""
    link = run.parent / "latest"
    temporary = run.parent / f".latest.{os.getpid()}.tmp"
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(run.name, target_is_directory=True)
        temporary.replace(link)
    except OSError as error:
        raise OutputError(f"cannot update the link {link}: {error.strerror or error}") from error


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder; reading and writing of the small files."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration and what it was run on."""
        return self.path / "config.yaml"

    @property
    def trajectory(self) -> Path:
        """Poses of all frames that were read, in TUM's format."""
        return self.path / "trajectory.txt"

    @property
    def ground_truth(self) -> Path:
        """True poses of the frames that have one, likewise; absent where there are none."""
        return self.path / "ground_truth.txt"

    @property
    def map(self) -> Path:
        """The spheres, as splat viewers read them."""
        return self.path / "map.ply"

    @property
    def compact_map(self) -> Path:
        """The spheres in a sixth of the bytes, see gsslam/export/compact.py."""
        return self.path / "map.npz"

    @property
    def features(self) -> Path:
        """What the spheres have learned, see gsslam/features/files.py."""
        return self.path / "features.safetensors"

    @property
    def metrics(self) -> Path:
        """The numbers of the run."""
        return self.path / "metrics.json"

    @property
    def frames(self) -> Path:
        """One JSON object a line, one line a frame."""
        return self.path / "frames.jsonl"

    @property
    def memory_plot(self) -> Path:
        """Memory, spheres and speed over the frames."""
        return self.path / "plots" / "memory.png"

    @property
    def log(self) -> Path:
        """What was logged."""
        return self.path / "log.txt"

    @property
    def checkpoint(self) -> Path:
        """The state from which an unfinished run goes on."""
        return self.path / "checkpoint.bin"

    @property
    def trace(self) -> Path:
        """What each thread did and when, for chrome://tracing."""
        return self.path / "trace.json"

    @property
    def flight(self) -> Path:
        """The last native operations of a run that failed, one JSON object a line."""
        return self.path / "flight.jsonl"

    @property
    def trajectory_plot(self) -> Path:
        """The trajectory against ground truth."""
        return self.path / "plots" / "trajectory.png"

    @property
    def frames_plot(self) -> Path:
        """Six frames: input, render, depths and error."""
        return self.path / "plots" / "frames.png"

    @property
    def exports(self) -> Path:
        """What ``gsslam export`` and ``gsslam render`` write, unless told otherwise."""
        return self.path / "export"

    def write_config(self, config: SlamConfig, run: Mapping[str, Any]) -> None:
        """Write ``config`` and, as its section ``run``, what else decided the run."""
        text = config_to_yaml(config) + "\n# What the configuration was run on.\n"
        with atomic_path(self.config) as temporary:
            temporary.write_text(
                text + yaml.safe_dump({RUN_SECTION: dict(run)}, sort_keys=False), encoding="utf-8"
            )

    def read_config(self) -> tuple[SlamConfig, dict[str, Any]]:
        """Return the configuration and the section ``run``; raises DatasetError without them."""
        try:
            values = yaml.safe_load(self._read(self.config))
        except yaml.YAMLError as error:
            raise DatasetError(f"{self.config} is damaged: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get(RUN_SECTION), dict):
            raise DatasetError(f"{self.config} has no section {RUN_SECTION!r}: not a run's file")
        return config_from_values(values, source=str(self.config)), values[RUN_SECTION]

    def write_metrics(self, metrics: Sequence[Metric], about: Mapping[str, Any]) -> None:
        """Write ``about`` and the values of ``metrics`` under flat keys; a metric goes first."""
        values = {**about, **{metric.name: metric.value for metric in metrics}}
        with atomic_path(self.metrics) as temporary:
            temporary.write_text(_json(values, indent=2) + "\n", encoding="utf-8")

    def read_metrics(self) -> dict[str, Any]:
        """Return what ``write_metrics`` wrote; raises DatasetError where there is none."""
        try:
            return dict(json.loads(self._read(self.metrics)))
        except (ValueError, TypeError) as error:
            raise DatasetError(f"{self.metrics} is damaged: {error}") from error

    def write_frames(self, records: Sequence[FrameRecord]) -> None:
        """Write one line a frame."""
        lines = [_json(asdict(record)) + "\n" for record in records]
        with atomic_path(self.frames) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")

    def read_frames(self) -> list[FrameRecord]:
        """Return what ``write_frames`` wrote; raises DatasetError where there is none."""
        lines = self._read(self.frames).splitlines()
        try:
            return [FrameRecord(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise DatasetError(f"{self.frames} is damaged: {error}") from error

    def remove_temporaries(self) -> None:
        """Remove what a killed run had begun to write."""
        for path in self.path.glob(f"**/{TEMPORARY_PATTERN}"):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def logging(self) -> Iterator[None]:
        """Write what gsslam logs to log.txt, as long as the context lasts."""
        handler = logging.FileHandler(self.log, encoding="utf-8")
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        logger = logging.getLogger("gsslam")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        except Exception:
            logger.exception("the run failed")
            raise
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            handler.close()

    def _read(self, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(
                f"{self.path} is not the folder of a run: cannot read {path.name}"
            ) from error


@contextlib.contextmanager
def claimed_folder(path: Path) -> Iterator[RunFolder]:
    """Create ``path`` and yield it as a run folder.

    Raises ConfigError where it holds something already, OutputError where nothing can be written
    to it. A run that ends before its trajectory or a checkpoint was written, with a known error or
    by Ctrl-C, leaves no trace; after an unknown error the log stays, for whoever looks for the
    cause.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    _make_writable(path)
    folder = RunFolder(path)
    try:
        yield folder
    except (GsslamError, KeyboardInterrupt):
        if not folder.trajectory.exists() and not folder.checkpoint.exists():
            _remove(path, missing)
        raise


def _make_writable(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError(f"output folder {path} is not empty: name another or empty it")
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror or error}") from error


def _remove(path: Path, created: list[Path]) -> None:
    """Empty ``path``, which was empty when the run began, and remove the folders it created."""
    with contextlib.suppress(OSError):
        for entry in path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
        for folder in created:  # innermost first; one that others use by now is not empty
            folder.rmdir()


def _json(values: Mapping[str, Any], indent: int | None = None) -> str:
    """Return JSON that every parser reads: numbers that are not finite become null."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
    return json.dumps(finite, indent=indent, allow_nan=False)
