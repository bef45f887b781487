"""The command line: ``gsslam run``, ``gsslam eval``, ``gsslam datasets``, ``gsslam doctor``."""

from gsslam.cli.main import main

__all__ = ["main"]
