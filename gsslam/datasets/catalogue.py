"""The catalogue: which sequences are known, where they come from, which cameras took them."""

from __future__ import annotations

import difflib
import functools
import os
import re
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
_Five = tuple[Finite, Finite, Finite, Finite, Finite]
Distortion = _Five | tuple[Finite, Finite, Finite, Finite, Finite, Finite, Finite, Finite]

T = TypeVar("T")

# Pixels.
_LARGEST_SIDE = 20_000

_strict = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_strict)
class CameraEntry:
    """A calibrated camera, as written in a YAML file."""

    width: Annotated[int, Field(ge=1, le=_LARGEST_SIDE)]
    height: Annotated[int, Field(ge=1, le=_LARGEST_SIDE)]
    fx: Positive
    fy: Positive
    cx: Finite
    cy: Finite
    # k1, k2, p1, p2, k3; or these and the denominator's k4, k5, k6.
    distortion: Distortion = (0.0, 0.0, 0.0, 0.0, 0.0)
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
    # Archive to download; None where there is none for this sequence alone.
    url: str | None = None
    # Of the archive, hexadecimal.
    sha256: str | None = None
    # A file of ground truth that is not in the archive.
    truth_url: str | None = None
    # The recordings that it consists of; the first one is taken where none is named.
    recordings: tuple[str, ...] = ()


@dataclass(frozen=True, config=_strict)
class Family:
    """The sequences of one benchmark: one YAML file of the catalogue."""

    title: str
    # Module of gsslam.datasets that reads it.
    loader: str
    sequences: dict[str, SequenceEntry]
    homepage: str = ""
    licence: str = ""
    # Archive that holds all sequences, a folder each.
    url: str | None = None
    # Whether frames are computed, so that there are no files.
    is_computed: bool = False
    # What a recording of this format looks like; where it is given, any such recording can be
    # opened by its path, listed or not.
    layout: str = ""
    # Where a sequence may lie below a data root, beside the customary places.
    folders: tuple[str, ...] = ()
    depth_scale: Positive = 1000.0
    cameras: dict[str, CameraEntry] = field(default_factory=dict)
    T_color_depth: MotionEntry | None = None
    # The colour camera in the frame whose poses the ground truth gives.
    T_truth_color: MotionEntry | None = None
    # Other names of sequences.
    aliases: dict[str, str] = field(default_factory=dict)


class Entry(NamedTuple):
    """A sequence together with its family: all that a loader needs to know."""

    # ``family/sequence`` or ``family/sequence/recording``, aliases resolved.
    name: str
    family: Family
    sequence: SequenceEntry

    @property
    def family_name(self) -> str:
        """The part of the name before the first slash."""
        return self.name.split("/")[0]

    @property
    def sequence_name(self) -> str:
        """The part of the name behind it."""
        return self.name.split("/")[1]

    @property
    def recording(self) -> str:
        """The recording that is asked for, or the sequence's first; empty where it has none."""
        return (self.name.split("/")[2:] or [*self.sequence.recordings[:1], ""])[0]

    def sensor(self) -> Sensor:
        """Return the cameras that took the sequence."""
        cameras = self.family.cameras
        depth, motion = cameras.get("depth"), self.family.T_color_depth
        return Sensor(
            colour=cameras[self.sequence.camera].calibration(),
            depth_scale=self.family.depth_scale,
            depth=depth.calibration() if depth else None,
            T_color_depth=motion.matrix() if motion else None,
        )

    @property
    def url(self) -> str | None:
        """The archive to download; None where there is nothing to download."""
        return self.sequence.url or self.family.url

    def cache_folder(self) -> Path:
        """Return where the downloaded sequence lies: ``GSSLAM_DATA_HOME`` or ~/.cache/gsslam."""
        home = os.environ.get("GSSLAM_DATA_HOME")
        root = Path(home) if home else Path.home() / ".cache" / "gsslam"
        return root / self.family_name / self.sequence_name

    def folders_below(self, root: Path) -> list[Path]:
        """Return where below the folder ``root`` of all datasets the sequence may lie."""
        family, name = self.family_name, self.sequence_name
        archive = (self.sequence.url or "").rpartition("/")[2]
        stem = re.sub(r"\.(tgz|tar\.gz|zip)$", "", archive)
        patterns = (f"{family}/{name}", name, *self.family.folders)
        if stem:
            patterns = (*patterns, stem, f"{family}/{stem}")
        return [root / pattern.format(sequence=name, archive=stem) for pattern in patterns]


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
    family_name, sequence_name, recording = (*name.split("/", maxsplit=2), "", "")[:3]
    family = families().get(family_name)
    if family is not None:
        sequence_name = family.aliases.get(sequence_name, sequence_name)
        sequence = family.sequences.get(sequence_name)
        if sequence is not None and (not recording or recording in sequence.recordings):
            whole_name = "/".join(filter(None, (family_name, sequence_name, recording)))
            return Entry(whole_name, family, sequence)
        if sequence is not None and sequence.recordings:
            raise DatasetError(
                f"{family_name}/{sequence_name} has no recording {recording!r}; it has "
                f"{', '.join(sequence.recordings)}"
            )
    known = [entry.name for entry in entries()]
    known += [f"{f}/{alias}" for f, entry in families().items() for alias in entry.aliases]
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "see `gsslam datasets list`"
    raise DatasetError(f"unknown dataset {name!r}; {hint}")


def formats() -> dict[str, Family]:
    """Return the families whose recordings can be opened by their path, by their names."""
    return {name: family for name, family in families().items() if family.layout}


def recording_of(format_name: str, place: Path, name: str = "") -> Entry:
    """Return the entry of the recording at ``place``, in a known format.

    It is called ``name`` or like the file or folder.
    """
    family = families()[format_name]
    place = place.expanduser().resolve()
    name = name or (place.stem if place.is_file() else place.name)
    known = family.sequences.get(name)
    return Entry(f"{format_name}/{name}", family, known or SequenceEntry(about=family.title))


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
