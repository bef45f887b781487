"""Where the files that ship with the package lie: the dataset catalogue and the presets."""

from __future__ import annotations

from pathlib import Path

from gsslam.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent


def _shipped_folder(installed: str, in_checkout: str) -> Path:
    for folder in (_PACKAGE / installed, _PACKAGE.parent / in_checkout):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"{_PACKAGE / installed} is missing: the installation is damaged, reinstall it"
    )


def catalogue_folder() -> Path:
    """Return the folder of the dataset catalogue (one YAML file a family)."""
    return _shipped_folder("_catalogue", "datasets")


def configs_folder() -> Path:
    """Return the folder of the presets (one YAML file a preset)."""
    return _shipped_folder("_configs", "configs")
