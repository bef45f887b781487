"""``gsslam query``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gsslam.cli.console import print_line
from gsslam.cli.status import SUCCESS
from gsslam.errors import ConfigError


@dataclass(frozen=True)
class Query:
    """Ask the map of a run: where else is what this pixel, or this picture, shows?

    The run must have been made with --features.

    Writes into RUN/query/...:
      overview.png      views of the map; the more alike, the redder
      frame-NNNNNN.png  each of them
      likeness.ply      the map coloured in the same way, for any Gaussian splat viewer

    Examples of use:
      gsslam query runs/7scenes/redkitchen/latest --frame 120 --pixel 210,160
      gsslam query runs/7scenes/redkitchen/latest --crop mug.png
    """

    # Folder that `gsslam run --features` wrote.
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    # Frame of the run in which --pixel is.
    frame: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    # Column and row, from the upper left corner of the run's images.
    pixel: Annotated[str | None, arg(metavar="X,Y", help_behavior_hint="")] = None
    # A picture of what to look for, instead of --frame and --pixel.
    crop: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    # Pictures to write, of frames evenly over the run.
    views: Annotated[int, arg(metavar="N")] = 6
    # Folder for the pictures. Default: a new one in RUN/query.
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None

    def execute(self) -> int:
        """Write the pictures and say where they are; return the exit status."""
        by_pixel = self.frame is not None and self.pixel is not None
        if by_pixel == (self.crop is not None) or (self.frame is None) != (self.pixel is None):
            raise ConfigError("give --frame and --pixel, or --crop: what is to be looked for")
        pixel = None if self.pixel is None else parse_pixel(self.pixel)
        import torch

        from gsslam.features.query import query_crop, query_pixel

        # Torch's idle threads spin, which takes the processors from the native pool.
        torch.set_num_threads(1)
        if self.crop is not None:
            result = query_crop(self.run, self.crop, views=self.views, out=self.out)
        else:
            assert self.frame is not None and pixel is not None
            result = query_pixel(self.run, self.frame, pixel, views=self.views, out=self.out)
        for frame, best in result.best.items():
            print_line(f"frame {frame}: likeness up to {best:.2f}")
        print_line(f"Pictures and {result.spheres.name} in {result.folder}")
        return SUCCESS


def parse_pixel(text: str) -> tuple[int, int]:
    """Return column and row of a text such as ``210,160``; raises ConfigError for others."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*,\s*(\d{1,5})\s*", text)
    if match is None:
        raise ConfigError(f"--pixel {text!r} must be column,row such as 210,160")
    return int(match[1]), int(match[2])
