"""Quantised layers in safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from gsslam.errors import ConfigError, NativeError
from gsslam.extras import require
from gsslam.files import atomic_path
from gsslam.quant.linear import LinearW4A8
from gsslam.quant.weights import PackedWeight

FORMAT = "gsslam-w4a8-1"
_PARTS = ("steps", "scales", "zeros", "bias", "factors")


def save_layers(path: Path, layers: Mapping[str, LinearW4A8]) -> None:
    """Write layers under their names; raises OutputError where the file cannot be written."""
    safetensors = require("safetensors.torch", "features", "saving quantised layers")
    tensors, sizes = {}, {}
    for name, layer in layers.items():
        sizes[name] = [layer.outputs, layer.inputs]
        for part in _PARTS:
            values = getattr(layer, part)
            if values is not None:
                tensors[f"{name}.{part}"] = values
    metadata = {"format": FORMAT, "sizes": json.dumps(sizes)}
    with atomic_path(path) as temporary:
        safetensors.save_file(tensors, temporary, metadata)


def load_layers(path: Path) -> dict[str, LinearW4A8]:
    """Read what ``save_layers`` wrote; raises ConfigError for any other file."""
    safetensors = require("safetensors", "features", "reading quantised layers")
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"cannot read quantised layers from {path}: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ConfigError(f"{path} holds no quantised layers of format {FORMAT}; save them anew")
    try:
        sizes = json.loads(metadata["sizes"])
        return {name: _layer(name, tensors, *size) for name, size in sizes.items()}
    except (KeyError, ValueError, TypeError, NativeError) as error:
        raise ConfigError(f"{path} is damaged: {error}; save it anew") from error


def _layer(name: str, tensors: dict[str, torch.Tensor], outputs: int, inputs: int) -> LinearW4A8:
    steps, scales, zeros = (tensors[f"{name}.{part}"] for part in _PARTS[:3])
    bias, factors = (tensors.get(f"{name}.{part}") for part in _PARTS[3:])
    return LinearW4A8(PackedWeight(steps, scales, zeros, outputs, inputs), bias, factors)
