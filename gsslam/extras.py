"""Libraries that only some of gsslam needs: imported when used, with an error that helps."""

from __future__ import annotations

import importlib
from types import ModuleType

from gsslam.errors import ConfigError


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a module of an optional extra; raises ConfigError saying what to install."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # the latter where a system library is missing
        raise ConfigError(
            f"{purpose} needs {module} ({error}); pip install 'gsslam[{extra}]'"
        ) from error
