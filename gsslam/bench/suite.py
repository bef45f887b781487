"""Suites: which sequences are run, with which settings, and what others reached on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from gsslam.bench.job import Job, plain_name
from gsslam.config import SlamConfig
from gsslam.datasets.catalogue import read_yaml
from gsslam.errors import ConfigError, DatasetError
from gsslam.presets import config_from_values, load_preset, preset_for
from gsslam.resources import configs_folder
from gsslam.source import Source, parse_resolution

_AUTO_PRESET = "auto"
# Under which peers state a figure of all sequences.
MEAN = "mean"

_strict = ConfigDict(extra="forbid")
_Figures = dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]
_Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_strict)
class Sequence:
    """One row of the table: a sequence and how it is run."""

    dataset: str
    # In the folder of ``--data``; where that is not given, the catalogue knows the place.
    folder: str | None = None
    resolution: str | None = None
    max_frames: _Count | None = None
    stride: _Count = 1
    # ``auto`` takes that of the dataset's family.
    preset: str = _AUTO_PRESET
    # What differs from the preset, nested as in a preset's file.
    config: dict[str, Any] = field(default_factory=dict)

    def source(self, data: Path | None, seed: int) -> Source:
        """Return how the dataset is opened."""
        path = data / self.folder if data is not None and self.folder else None
        resolution = parse_resolution(self.resolution) if self.resolution else None
        return Source(self.dataset, path, resolution, self.max_frames, self.stride, seed)

    def configuration(self, seed: int) -> SlamConfig:
        """Return the preset with the sequence's changes; raises ConfigError for wrong ones."""
        name = preset_for(self.dataset) if self.preset == _AUTO_PRESET else self.preset
        values = asdict(load_preset(name))
        for key, value in self.config.items():
            values[key] = {**values[key], **value} if isinstance(values.get(key), dict) else value
        return replace(config_from_values(values, source=self.dataset), seed=seed)


@dataclass(frozen=True, config=_strict)
class Peer:
    """What another system reached, by sequence, and who says so."""

    name: str
    source: str
    ate_rmse_cm: _Figures = field(default_factory=dict)
    psnr_db: _Figures = field(default_factory=dict)


@dataclass(frozen=True, config=_strict)
class Suite:
    """The content of a suite's file."""

    title: str
    sequences: dict[str, Sequence]
    peers: tuple[Peer, ...] = ()

    def with_settings(self, settings: Mapping[str, Any]) -> Suite:
        """Return the suite with ``settings``, fields of Sequence, in place of every sequence's.

        Over other frames than theirs, peers cannot be compared with: they are left out.
        """
        changed = {name: replace(entry, **settings) for name, entry in self.sequences.items()}
        peers = () if {"max_frames", "stride"} & set(settings) else self.peers
        return replace(self, sequences=changed, peers=peers)

    def jobs(self, out: Path, seeds: int, device: str, data: Path | None = None) -> list[Job]:
        """Return the runs, every sequence's first seed before any's second.

        Each has a folder of its own for its settings, so that others are never taken for these.
        """
        return [
            _job(name, sequence, out, seed, device, data)
            for seed in range(seeds)
            for name, sequence in self.sequences.items()
        ]


def suite_names() -> list[str]:
    """Return the suites that come with gsslam."""
    return sorted(path.stem for path in _suites_folder().glob("*.yaml"))


def load_suite(name: str) -> Suite:
    """Return the suite ``name``, or that of the YAML file of that path; raises ConfigError."""
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        path = _suites_folder() / f"{name}.yaml"
        if name not in suite_names():
            choices = ", ".join(suite_names())
            raise ConfigError(f"no suite {name!r}: choose one of {choices}, or give a .yaml file")
    try:
        suite = read_yaml(path, Suite)
    except DatasetError as error:  # as of any other file of the catalogue
        raise ConfigError(str(error)) from error
    if not suite.sequences:
        raise ConfigError(f"{path} names no sequences")
    _check_peers(suite, path)
    return suite


def _check_peers(suite: Suite, path: Path) -> None:
    for peer in suite.peers:
        for name in (*peer.ate_rmse_cm, *peer.psnr_db):
            if name != MEAN and name not in suite.sequences:
                raise ConfigError(f"{path}: {peer.name} has a figure of {name!r}, no sequence here")


def _job(
    name: str, sequence: Sequence, out: Path, seed: int, device: str, data: Path | None
) -> Job:
    config, source = sequence.configuration(seed), sequence.source(data, seed)
    values = {**source.to_values(), "path": None, "device": device, "config": asdict(config)}
    text = json.dumps(values, sort_keys=True)
    digits = hashlib.sha256(text.encode()).hexdigest()[:8]
    folder = out / plain_name(name) / f"seed{seed}-{digits}"
    return Job(name, seed, config, source, device, folder)


def _suites_folder() -> Path:
    return configs_folder() / "suites"
