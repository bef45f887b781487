"""Parsing of the command line, and what the shell is told in the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

import gsslam
from gsslam.cli.datasets import Datasets
from gsslam.cli.eval import Eval
from gsslam.cli.run import Run, run_defaults
from gsslam.errors import GsslamError

_DESCRIPTION = """\
RGB-D SLAM whose map is a set of Gaussian spheres: from a colour and depth sequence to the
trajectory of the camera, a map to look at, and measured quality. Runs with and without a GPU.

Examples:
  gsslam run                              the built-in synthetic room, nothing to download
  gsslam run --dataset tum/fr1_xyz        a real sequence, once it is downloaded
  gsslam datasets list                    which sequences there are
  gsslam eval runs/synthetic/room/latest  the metrics of a run, computed again from its files

Help on a command: gsslam run --help. Version: gsslam --version.
"""

# Exit statuses; 1 is what Python gives to an error nobody expected.
_SUCCESS, _KNOWN_ERROR, _INTERRUPTED = 0, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: those of this process); return the exit status.

    0 on success; 2, after one line on stderr, for an error that gsslam knows; 130 after Ctrl-C.
    Errors that it does not know come through as they are. Raises SystemExit as tyro does: 0 after
    --help, 2 for arguments that cannot be parsed.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"gsslam {gsslam.__version__}")
        return _SUCCESS
    try:
        interrupted = _parse(arguments or ["--help"]).execute()
    except GsslamError as error:
        print(f"gsslam: {' '.join(str(error).split())}", file=sys.stderr)
        return _KNOWN_ERROR
    except KeyboardInterrupt:
        print("gsslam: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return _INTERRUPTED if interrupted else _SUCCESS


def _parse(arguments: list[str]) -> Run | Eval | Datasets:
    # A union that is put together at run time, since the preset decides the defaults of `run`.
    defaults = run_defaults(arguments)
    commands: Any = (
        Annotated[Run, subcommand("run", prefix_name=False, default=defaults)]
        | Annotated[Eval, subcommand("eval", prefix_name=False)]
        | Annotated[Datasets, subcommand("datasets", prefix_name=False)]
    )
    command: Run | Eval | Datasets = tyro.cli(
        commands, prog="gsslam", description=_DESCRIPTION, args=arguments
    )
    return command
