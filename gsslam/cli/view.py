"""``gsslam view``."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gsslam.cli.console import print_line
from gsslam.cli.status import SUCCESS


@dataclass(frozen=True)
class View:
    """Show a run in the browser: its map, the way of the camera, its images.

    Ctrl-C ends it. Nothing in the run's folder is changed.

    Examples of use:
      gsslam view runs/synthetic/room/latest
      gsslam view results/desk --path /mnt/data/rgbd_dataset_freiburg1_desk --viewer-port 9000
    """

    # Folder that `gsslam run` wrote.
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    # Folder of the dataset, if it moved since.
    path: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Port of the viewer; 0 takes any free one.
    viewer_port: Annotated[int, arg(metavar="PORT")] = 8080
    # Address that the viewer listens on; 0.0.0.0 lets other computers look.
    viewer_host: Annotated[str, arg(metavar="HOST")] = "127.0.0.1"

    def execute(self) -> int:
        """Serve until Ctrl-C; return the exit status."""
        from gsslam.viewer import Playback

        try:
            with Playback.open(
                self.run, dataset_path=self.path, host=self.viewer_host, port=self.viewer_port
            ) as playback:
                if playback.problem:
                    print_line(f"Without images: {playback.problem}")
                print_line(f"{self.run} is shown at {playback.address}; Ctrl-C ends it")
                threading.Event().wait()
        except KeyboardInterrupt:
            print_line("")
        return SUCCESS
