"""How a dataset is opened, in values that a file can hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsslam.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset


@dataclass(frozen=True)
class Source:
    """The arguments of ``open_dataset``."""

    # Catalogue identifier.
    dataset: str
    # Folder of the sequence; None where the catalogue knows it or it is made on the fly.
    path: Path | None = None
    # Width and height in pixels; None keeps those of the dataset.
    resolution: tuple[int, int] | None = None
    # None takes all.
    max_frames: int | None = None
    # Every n-th frame is taken.
    stride: int = 1
    seed: int = 0

    def open(self) -> Dataset:
        """Open the dataset; raises DatasetError or ConfigError where that is impossible."""
        from gsslam.datasets import open_dataset

        return open_dataset(
            self.dataset,
            self.path,
            resolution=self.resolution,
            max_frames=self.max_frames,
            stride=self.stride,
            seed=self.seed,
        )

    def to_values(self) -> dict[str, Any]:
        """Return the fields as plain values for YAML; the path becomes absolute."""
        return {
            "dataset": self.dataset,
            "path": None if self.path is None else str(self.path.expanduser().resolve()),
            "resolution": None if self.resolution is None else "{}x{}".format(*self.resolution),
            "max_frames": self.max_frames,
            "stride": self.stride,
            "seed": self.seed,
        }

    @staticmethod
    def from_values(values: dict[str, Any]) -> Source:
        """Return the source that ``to_values`` wrote; raises DatasetError for anything else."""
        try:
            path, resolution = values["path"], values["resolution"]
            return Source(
                dataset=str(values["dataset"]),
                path=None if path is None else Path(path),
                resolution=None if resolution is None else parse_resolution(resolution),
                max_frames=values["max_frames"],
                stride=int(values["stride"]),
                seed=int(values["seed"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"the run's config.yaml does not say its dataset: {error}"
            ) from error


def parse_resolution(text: str) -> tuple[int, int]:
    """Return width and height of a text such as ``320x240``; raises ConfigError for others."""
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text.strip().lower())
    if match is None:
        raise ConfigError(f"resolution {text!r} must be width x height in pixels, such as 320x240")
    return int(match[1]), int(match[2])
