"""The command line: ``gsslam run``, ``gsslam eval``, ``gsslam datasets``."""

from gsslam.cli.main import main

__all__ = ["main"]
