"""Parsing of the command line, and what the shell is told in the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

import gsslam
from gsslam.cli import status
from gsslam.cli.bench import Bench
from gsslam.cli.datasets import Datasets
from gsslam.cli.doctor import Doctor
from gsslam.cli.eval import Eval
from gsslam.cli.export import Export
from gsslam.cli.query import Query
from gsslam.cli.render import Render
from gsslam.cli.report import Report
from gsslam.cli.run import Run, run_defaults
from gsslam.cli.view import View
from gsslam.errors import GsslamError

_DESCRIPTION = """\
RGB-D SLAM whose map is a set of Gaussian spheres; runs with and without a GPU.

From colour and depth images to the path of the camera, a map to look at, and measured quality.

Examples:
  gsslam run                              the built-in synthetic room, nothing to download
  gsslam run --dataset tum/fr1_xyz        a real sequence, once it is downloaded
  gsslam datasets list                    which sequences there are
  gsslam eval runs/synthetic/room/latest  the metrics of a run, computed again from its files
  gsslam report runs/synthetic/room/latest
                                          one page about a run: plots, images, numbers
  gsslam export runs/synthetic/room/latest --format mesh
                                          the map in another format
  gsslam render runs/synthetic/room/latest --path orbit
                                          a film of the map
  gsslam view runs/synthetic/room/latest  a run in the browser: map, camera, images
  gsslam bench --suite tum                many sequences and seeds, one table
  gsslam doctor                           what is wrong with this computer, a dataset or a run

Help on a command: gsslam run --help. Version: gsslam --version.
"""

_Command = Run | Eval | View | Query | Report | Export | Render | Bench | Datasets | Doctor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: those of this process); return the exit status.

    0 on success; 1 where the doctor found something wrong; 2, after one line on stderr, for an
    error that gsslam knows; 130 after Ctrl-C.
    Errors that it does not know come through as they are. Raises SystemExit as tyro does: 0 after
    --help, 2 for arguments that cannot be parsed.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"gsslam {gsslam.__version__}")
        return status.SUCCESS
    try:
        result = _parse(arguments or ["--help"]).execute()
        sys.stdout.flush()
    except GsslamError as error:
        print(f"gsslam: {' '.join(str(error).split())}", file=sys.stderr)
        return status.KNOWN_ERROR
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has seen enough. What Python still holds back must
        # not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status.SUCCESS
    except KeyboardInterrupt:
        print("gsslam: interrupted", file=sys.stderr)
        return status.INTERRUPTED
    return result


def _parse(arguments: list[str]) -> _Command:
    # A union that is put together at run time, since the preset decides the defaults of `run`.
    commands: Any = (
        Annotated[Run, _subcommand(Run, arguments, default=run_defaults(arguments))]
        | Annotated[Eval, _subcommand(Eval, arguments)]
        | Annotated[Report, _subcommand(Report, arguments)]
        | Annotated[Export, _subcommand(Export, arguments)]
        | Annotated[Render, _subcommand(Render, arguments)]
        | Annotated[View, _subcommand(View, arguments)]
        | Annotated[Bench, _subcommand(Bench, arguments)]
        | Annotated[Query, _subcommand(Query, arguments)]
        | Annotated[Datasets, _subcommand(Datasets, arguments)]
        | Annotated[Doctor, _subcommand(Doctor, arguments)]
    )
    command: _Command = tyro.cli(commands, prog="gsslam", description=_DESCRIPTION, args=arguments)
    return command


def _subcommand(command: type, arguments: list[str], **options: Any) -> Any:
    """Return the subcommand of class ``command``, described in one line in the general help."""
    name = command.__name__.lower()
    if name not in arguments:
        options["description"] = (command.__doc__ or "").splitlines()[0]
    return subcommand(name, prefix_name=False, **options)
