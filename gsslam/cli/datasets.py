"""``gsslam datasets``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.table import Table
from tyro.conf import Positional, arg, subcommand

from gsslam.cli.console import CountReport, DownloadReport, output, print_line
from gsslam.cli.status import SUCCESS

_Name = Annotated[Positional[str], arg(metavar="NAME")]


@dataclass(frozen=True)
class ListDatasets:
    """List the sequences and the formats that gsslam knows."""

    def execute(self) -> None:
        """Print a table with one line a sequence, and one with a line a format."""
        from gsslam.datasets.catalogue import formats
        from gsslam.datasets.registry import list_datasets

        table = Table(box=None, pad_edge=False)
        table.add_column("name", no_wrap=True)
        table.add_column("here", no_wrap=True)
        table.add_column("what it is")
        for info in list_datasets():
            ready = "[green]yes[/]" if info.is_available else "[dim]no[/]"
            table.add_row(info.name, ready, info.about)
        output().print(table)
        table = Table(box=None, pad_edge=False)
        table.add_column("format", no_wrap=True)
        table.add_column("what a recording of your own looks like")
        for name, family in formats().items():
            table.add_row(name, family.layout)
        print_line("")
        output().print(table)
        print_line("")
        print_line(
            "A recording of your own: gsslam run --dataset PATH, or --dataset FORMAT --path PATH"
        )


@dataclass(frozen=True)
class ShowDataset:
    """Show what is known of one sequence."""

    # As in the list.
    name: _Name

    def execute(self) -> None:
        """Print what the catalogue says."""
        from gsslam.datasets.registry import describe

        info = describe(self.name)
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for label, value in (
            ("name", info.name),
            ("family", info.title),
            ("what it is", info.about),
            ("recordings", ", ".join(f"{info.name}/{name}" for name in info.recordings)),
            ("licence", info.licence),
            ("homepage", info.homepage),
            ("download", info.url or "nothing to download"),
            ("folder", str(info.folder)),
            ("on this computer", "yes" if info.is_available else "no"),
        ):
            if value:
                table.add_row(label, value)
        output().print(table)


@dataclass(frozen=True)
class DownloadDataset:
    """Download a sequence from its publisher; a broken download goes on where it stopped."""

    # As in the list.
    name: _Name

    def execute(self) -> None:
        """Download and say where the sequence lies."""
        from gsslam.datasets.download import download_dataset

        with DownloadReport(self.name) as report:
            folder = download_dataset(self.name, on_progress=report.update)
        print_line(f"{self.name} is ready in {folder}")


@dataclass(frozen=True)
class ConvertDataset:
    """Write a sequence in the TUM benchmark's layout, which most SLAM programs read.

    Frames are undistorted, depth is registered to colour. What is written runs with
    `gsslam run --dataset DIR`.

    Examples of use:
      gsslam datasets convert ~/recordings/kitchen.bag ~/kitchen
      gsslam datasets convert 7scenes/chess/seq-03 ~/chess --stride 2
    """

    # A name from the list, or the path of a recording.
    dataset: Annotated[Positional[str], arg(metavar="ID")]
    # Folder to write, new or empty.
    out: Annotated[Positional[Path], arg(metavar="DIR")]
    # File or folder of the sequence, if it was not downloaded by gsslam.
    path: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Folder below which datasets lie, to find the sequence in.
    data_root: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    # Width x height in pixels. Default: those of the images.
    resolution: Annotated[str | None, arg(metavar="WxH", help_behavior_hint="")] = None
    # Stop after this many frames. Default: all.
    max_frames: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    # Take every K-th frame.
    stride: Annotated[int, arg(metavar="K")] = 1
    # Value of a depth image at one metre. Default: that of the source, or 5000.
    depth_scale: Annotated[float | None, arg(metavar="S", help_behavior_hint="")] = None

    def execute(self) -> None:
        """Convert, and say what was left out."""
        from gsslam.datasets.convert import convert_dataset
        from gsslam.datasets.registry import resolve
        from gsslam.source import Source, parse_resolution

        name, path = resolve(self.dataset, self.path, self.data_root)
        size = None if self.resolution is None else parse_resolution(self.resolution)
        dataset = Source(name, path, size, self.max_frames, self.stride).open()
        out = self.out.expanduser()
        with CountReport(name) as report:
            done = convert_dataset(
                dataset, out, depth_scale=self.depth_scale, on_progress=report.update
            )
        if done.skipped:
            print_line(f"{done.skipped} frames cannot be read and are left out: {done.reason}")
        if done.too_far:
            print_line(
                f"{done.too_far} depths are too far away for 16 bits and are left out: "
                f"a --depth-scale under {done.depth_scale:g} reaches farther"
            )
        print_line(f"{done.frames} frames in {out}; depth images have {done.depth_scale:g} at 1 m")


@dataclass(frozen=True)
class RecordDataset:
    """Record a live camera in the TUM benchmark's layout, until Ctrl-C or --max-frames.

    What is written runs with `gsslam run --dataset DIR`.

    Examples of use:
      gsslam datasets record live/realsense ~/kitchen
    """

    # A live camera: live/realsense.
    camera: Annotated[Positional[str], arg(metavar="CAMERA")]
    # Folder to write, new or empty.
    out: Annotated[Positional[Path], arg(metavar="DIR")]
    # Width x height in pixels. Default: the camera's.
    resolution: Annotated[str | None, arg(metavar="WxH", help_behavior_hint="")] = None
    # Stop after this many frames.
    max_frames: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None

    def execute(self) -> None:
        """Record, and say how much there is."""
        from gsslam.datasets.live import open_camera, record
        from gsslam.source import parse_resolution

        size = None if self.resolution is None else parse_resolution(self.resolution)
        camera = open_camera(self.camera, size)
        with CountReport(self.camera) as report:
            count = record(camera, self.out.expanduser(), self.max_frames, report.update)
        print_line(f"{count} frames in {self.out}")


_Action = (
    Annotated[ListDatasets, subcommand("list", prefix_name=False)]
    | Annotated[ShowDataset, subcommand("show", prefix_name=False)]
    | Annotated[DownloadDataset, subcommand("download", prefix_name=False)]
    | Annotated[ConvertDataset, subcommand("convert", prefix_name=False)]
    | Annotated[RecordDataset, subcommand("record", prefix_name=False)]
)


@dataclass(frozen=True)
class Datasets:
    """List, describe, download, convert or record RGB-D sequences."""

    action: Annotated[_Action, arg(name="")] = field(default_factory=ListDatasets)

    def execute(self) -> int:
        """Carry out the action; return the exit status."""
        self.action.execute()
        return SUCCESS
