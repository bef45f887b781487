"""Presets: YAML files that hold what differs from the defaults; and the way back to YAML."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from gsslam.config import SlamConfig
from gsslam.errors import ConfigError
from gsslam.resources import configs_folder

# A run folder's config.yaml has this section beside the configuration; it may serve as a preset.
RUN_SECTION = "run"


def preset_names() -> list[str]:
    """Return the names of the presets that come with gsslam."""
    return sorted(path.stem for path in configs_folder().glob("*.yaml"))


def preset_for(dataset: str) -> str:
    """Return the preset of a dataset's family (the part before the slash), or ``default``."""
    family = dataset.split("/", maxsplit=1)[0]
    return family if family in preset_names() else "default"


def load_preset(name: str) -> SlamConfig:
    """Return the configuration of preset ``name``, or of the YAML file of that path.

    Raises ConfigError where there is none, or where it has unknown keys or values out of range.
    """
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        path = configs_folder() / f"{name}.yaml"
        if name not in preset_names():
            choices = ", ".join(preset_names())
            raise ConfigError(f"no preset {name!r}: choose one of {choices}, or give a .yaml file")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read preset {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {_one_line(error)}") from error
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path} must hold named values such as 'seed: 1'")
    return config_from_values(values or {}, source=str(path))


def config_from_values(values: dict[str, Any], *, source: str) -> SlamConfig:
    """Return the configuration with ``values`` (nested as in YAML) in place of the defaults.

    Raises ConfigError, which names ``source``, for unknown keys and values out of range.
    """
    values = {key: value for key, value in values.items() if key != RUN_SECTION}
    try:
        return TypeAdapter(SlamConfig).validate_python(values)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def config_to_yaml(config: SlamConfig) -> str:
    """Return every value of ``config`` as YAML that ``load_preset`` reads back to an equal one."""
    return yaml.safe_dump(asdict(config), sort_keys=False)


def config_hash(config: SlamConfig) -> str:
    """Return 12 hexadecimal digits that are equal for equal configurations."""
    text = json.dumps(asdict(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
