"""Learned features in a run folder: queries, head, and the keyframes' features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.errors import ConfigError, DatasetError
from gsslam.export.ply import read_ply
from gsslam.extras import require
from gsslam.features.head import FeatureHead
from gsslam.features.map_features import MapFeatures
from gsslam.features.teacher import Teacher, open_teacher
from gsslam.files import atomic_path
from gsslam.gaussian_map import GaussianMap
from gsslam.raster import constants as c
from gsslam.run_folder import RunFolder

_FORMAT = "gsslam-features-1"
_ENTRY = "gsslam"
_PURPOSE = "a run's learned features"


def write_features(features: MapFeatures, config: SlamConfig, path: Path) -> None:
    """Write what ``read_features`` reads beside the map.

    Raises OutputError where the file cannot be written, ConfigError without the extra.
    """
    safetensors = require("safetensors.torch", "features", _PURPOSE)
    tensors = {f"head.{name}": value for name, value in features.head.state_dict().items()}
    tensors["queries"] = features.map.live_queries
    tensors |= {f"tokens.{index}": tokens for index, tokens in features.tokens.items()}
    about = {
        "format": _FORMAT,
        "teacher": config.features.teacher,
        "teacher_scale": config.features.teacher_scale,
        "low_pass": config.map.low_pass,
        "camera": asdict(features.camera),
        "map": _digest(features.map),
    }
    # In one entry: the order of several is another one every time.
    metadata = {_ENTRY: json.dumps(about)}
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        temporary.write_bytes(safetensors.save(content, metadata))


def read_features(folder: RunFolder, teacher: Teacher | None = None) -> MapFeatures:
    """Return the features of a run's map; those of its keyframes are read when they are needed.

    ``teacher`` is the encoder that they were learned from, where the file cannot name it.
    Raises ConfigError where the run learned none, DatasetError where its files do not fit.
    """
    path = folder.features
    if not path.exists():
        folder.read_config()  # which says where this is no run at all
        raise ConfigError(
            f"the run {folder.path} has learned no features: run it again with --features"
        )
    state = read_ply(folder.map)
    tensors, about = _read(path)
    try:
        queries = tensors.pop("queries")
        head = FeatureHead.of_state({k.removeprefix("head."): t for k, t in tensors.items()})
        camera = Camera(**about["camera"])
        name, scale = about["teacher"], about["teacher_scale"]
        low_pass, digest = float(about["low_pass"]), about["map"]
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(f"{path} does not hold what it should: {error}") from error
    spheres = GaussianMap(max(len(state), 1), len(queries))
    spheres.load(state)
    if queries.shape[1] != spheres.count or _digest(spheres) != digest:
        raise DatasetError(f"{path} belongs to another map than {folder.map}")
    spheres.live_queries.copy_(queries)
    tokens = partial(_read_tokens, path)
    return MapFeatures(
        *(spheres, head, camera, low_pass, tokens), lambda: teacher or open_teacher(name, scale)
    )


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return all tensors but those of keyframes, and what the file says about itself."""
    safetensors = require("safetensors", "features", _PURPOSE)
    try:
        with safetensors.safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get(_ENTRY, "{}"))
            names = [name for name in file.keys() if not name.startswith("tokens.")]  # noqa: SIM118
            tensors = {name: file.get_tensor(name) for name in names}
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise DatasetError(f"cannot read learned features from {path}: {error}") from error
    if about.get("format") != _FORMAT:
        raise DatasetError(f"{path} holds no learned features of format {_FORMAT}")
    return tensors, about


def _read_tokens(path: Path) -> Mapping[int, torch.Tensor]:
    safetensors = require("safetensors", "features", _PURPOSE)
    with safetensors.safe_open(path, "pt") as file:
        names = [name for name in file.keys() if name.startswith("tokens.")]  # noqa: SIM118
        tokens = {int(name.removeprefix("tokens.")): file.get_tensor(name) for name in names}
    return dict(sorted(tokens.items()))


def _digest(gaussian_map: GaussianMap) -> str:
    """Return a hash of the spheres' centres, which tells one map from another."""
    centres = gaussian_map.live[c.ROW_XYZ].cpu().contiguous().numpy()
    return hashlib.sha256(centres.tobytes()).hexdigest()[:16]
