"""The catalogue: which sequences are known, where they come from, which cameras took them."""

from __future__ import annotations

import difflib
import functools
import os
from dataclasses import field
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from gsslam.camera import Camera
from gsslam.datasets.rectify import Calibration
from gsslam.datasets.sequence import Sensor
from gsslam.errors import DatasetError
from gsslam.resources import catalogue_folder

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Triple = tuple[Finite, Finite, Finite]

T = TypeVar("T")

_strict = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_strict)
class CameraEntry:
    """A calibrated camera, as written in a YAML file."""

    width: Annotated[int, Field(ge=1)]
    height: Annotated[int, Field(ge=1)]
    fx: Positive
    fy: Positive
    cx: Finite
    cy: Finite
    # k1, k2, p1, p2, k3.
    distortion: tuple[Finite, Finite, Finite, Finite, Finite] = (0.0, 0.0, 0.0, 0.0, 0.0)
    # Where pixel centres lie: at ``integer`` positions (OpenCV, ROS, TUM) or ``half`` way between.
    pixel_centre: Annotated[str, Field(pattern="^(integer|half)$")] = "integer"

    def calibration(self) -> Calibration:
        """Return the calibration in the convention of Camera."""
        shift = 0.5 if self.pixel_centre == "integer" else 0.0
        cx, cy = self.cx + shift, self.cy + shift
        camera = Camera(self.width, self.height, self.fx, self.fy, cx, cy)
        return Calibration(camera, self.distortion)


@dataclass(frozen=True, config=_strict)
class MotionEntry:
    """A rigid motion, as written in a YAML file."""

    # Radians.
    rotation_vector: Triple
    # Metres.
    translation: Triple

    def matrix(self) -> NDArray[np.float64]:
        """Return the motion as a (4, 4) matrix."""
        T = np.eye(4)
        T[:3, :3] = cv2.Rodrigues(np.array(self.rotation_vector, dtype=np.float64))[0]
        T[:3, 3] = self.translation
        return T


@dataclass(frozen=True, config=_strict)
class SequenceEntry:
    """One sequence of a family."""

    about: str
    # Which of the family's cameras took the colour images.
    camera: str = "colour"
    # Archive to download; None where there is nothing to download.
    url: str | None = None
    # Of the archive, hexadecimal.
    sha256: str | None = None


@dataclass(frozen=True, config=_strict)
class Family:
    """The sequences of one benchmark: one YAML file of the catalogue."""

    title: str
    # Module of gsslam.datasets that reads it.
    loader: str
    sequences: dict[str, SequenceEntry]
    homepage: str = ""
    licence: str = ""
    depth_scale: Positive = 1000.0
    cameras: dict[str, CameraEntry] = field(default_factory=dict)
    T_color_depth: MotionEntry | None = None
    # Other names of sequences.
    aliases: dict[str, str] = field(default_factory=dict)


class Entry(NamedTuple):
    """A sequence together with its family: all that a loader needs to know."""

    # ``family/sequence``, aliases resolved.
    name: str
    family: Family
    sequence: SequenceEntry

    def sensor(self) -> Sensor:
        """Return the cameras that took the sequence."""
        cameras = self.family.cameras
        depth, motion = cameras.get("depth"), self.family.T_color_depth
        return Sensor(
            colour=cameras[self.sequence.camera].calibration(),
            depth_scale=self.family.depth_scale,
            depth=depth.calibration().camera if depth else None,
            T_color_depth=motion.matrix() if motion else None,
        )

    def cache_folder(self) -> Path:
        """Return where the downloaded sequence lies: ``GSSLAM_DATA_HOME`` or ~/.cache/gsslam."""
        home = os.environ.get("GSSLAM_DATA_HOME")
        return (Path(home) if home else Path.home() / ".cache" / "gsslam") / self.name


@functools.cache
def families() -> dict[str, Family]:
    """Return every family of the catalogue by its name."""
    paths = sorted(catalogue_folder().glob("*.yaml"))
    return {path.stem: read_yaml(path, Family) for path in paths}


def entries() -> list[Entry]:
    """Return every sequence of the catalogue, family by family."""
    return [
        Entry(f"{family_name}/{name}", family, sequence)
        for family_name, family in families().items()
        for name, sequence in family.sequences.items()
    ]


def find(name: str) -> Entry:
    """Return the sequence called ``name``; raises DatasetError with near matches where none is."""
    family_name, _, sequence_name = name.partition("/")
    family = families().get(family_name)
    if family is not None:
        sequence_name = family.aliases.get(sequence_name, sequence_name)
        if sequence_name in family.sequences:
            sequence = family.sequences[sequence_name]
            return Entry(f"{family_name}/{sequence_name}", family, sequence)
    known = [entry.name for entry in entries()]
    known += [f"{f}/{alias}" for f, entry in families().items() for alias in entry.aliases]
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "see `gsslam datasets list`"
    raise DatasetError(f"unknown dataset {name!r}; {hint}")


def read_yaml(path: Path, kind: type[T]) -> T:
    """Read a YAML file as the pydantic dataclass ``kind``; raises DatasetError where it differs."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return TypeAdapter(kind).validate_python(content)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise DatasetError(f"{path}: {where}: {first['msg']}") from error
