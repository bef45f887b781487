"""``gsslam datasets``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rich.table import Table
from tyro.conf import Positional, arg, subcommand

from gsslam.cli.console import DownloadReport, output, print_line
from gsslam.cli.status import SUCCESS

_Name = Annotated[Positional[str], arg(metavar="NAME")]


@dataclass(frozen=True)
class ListDatasets:
    """List the sequences that gsslam knows."""

    def execute(self) -> None:
        """Print a table with one line a sequence."""
        from gsslam.datasets.registry import list_datasets

        table = Table(box=None, pad_edge=False)
        table.add_column("name", no_wrap=True)
        table.add_column("here", no_wrap=True)
        table.add_column("what it is")
        for info in list_datasets():
            ready = "[green]yes[/]" if info.is_available else "[dim]no[/]"
            table.add_row(info.name, ready, info.about)
        output().print(table)
        print_line("")
        print_line("A folder of your own: gsslam run --dataset folder --path DIR")


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
            ("licence", info.licence),
            ("homepage", info.homepage),
            ("download", info.url or "nothing to download"),
            ("folder", str(info.folder)),
            ("on this computer", "yes" if info.is_available else "no"),
        ):
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


_Action = (
    Annotated[ListDatasets, subcommand("list", prefix_name=False)]
    | Annotated[ShowDataset, subcommand("show", prefix_name=False)]
    | Annotated[DownloadDataset, subcommand("download", prefix_name=False)]
)


@dataclass(frozen=True)
class Datasets:
    """List, describe or download RGB-D sequences."""

    action: Annotated[_Action, arg(name="")]

    def execute(self) -> int:
        """Carry out the action; return the exit status."""
        self.action.execute()
        return SUCCESS
