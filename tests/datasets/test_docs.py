"""What the pages on datasets say holds: every format is there, commands parse, examples work."""

import re
import shlex
from pathlib import Path

import pytest
import tyro

from gsslam.cli.datasets import Datasets
from gsslam.cli.doctor import Doctor
from gsslam.cli.run import Run, run_defaults
from gsslam.datasets import catalogue
from gsslam.datasets.bag_images import _COLOUR
from gsslam.datasets.bag_topics import read_settings
from gsslam.datasets.camera_file import read_camera

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    name: (DOCS / name).read_text(encoding="utf-8") for name in ("datasets.md", "own_camera.md")
}


def test_every_family_has_its_place() -> None:
    for name in catalogue.families():
        assert re.search(rf"^### .*: `{name}`$", PAGES["datasets.md"], re.MULTILINE), name
    assert "rgb8" in _COLOUR
    for name, count in (("tum", 47), ("bonn", 26)):
        assert f"{count} sequences" in PAGES["datasets.md"]
        assert len(catalogue.families()[name].sequences) == count


def commands() -> list[str]:
    found = []
    for page in PAGES.values():
        found += re.findall(r"^ +gsslam (.*?)(?: {2,}#.*)?$", page, re.MULTILINE)
    return found


@pytest.mark.parametrize("command", commands())
def test_commands_parse(command: str) -> None:
    words = shlex.split(command)
    kind = {"run": Run, "doctor": Doctor, "datasets": Datasets}[words[0]]
    default = {"default": run_defaults(words)} if kind is Run else {}
    parsed = tyro.cli(kind, args=words[1:], **default)
    name = getattr(parsed, "dataset", None) or getattr(getattr(parsed, "action", None), "name", "")
    family, _, rest = name.partition("/")
    if rest and family in catalogue.families() and family not in ("scannet",):
        catalogue.find(name)


def test_example_files_can_be_read(tmp_path: Path) -> None:
    blocks = dict(re.findall(r"<!-- (\S+) -->\n```yaml\n(.*?)```", PAGES["datasets.md"], re.DOTALL))
    (tmp_path / "camera.yaml").write_text(blocks["camera.yaml"])
    sensor = read_camera(tmp_path / "camera.yaml").sensor()
    assert sensor.depth is not None
    (tmp_path / "kitchen.bag.yaml").write_text(blocks["BAG.yaml"])
    settings = read_settings(tmp_path / "kitchen.bag")
    assert None not in vars(settings).values()
    small = re.search(r"`my_scan/camera.yaml`:\n\n((?: {8}.*\n)+)", PAGES["own_camera.md"])
    assert small is not None
    (tmp_path / "camera.yaml").write_text(re.sub(r"^ {8}", "", small[1], flags=re.MULTILINE))
    assert read_camera(tmp_path / "camera.yaml").depth_scale == 1000


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGES["own_camera.md"], flags=re.DOTALL)
    exec(compile(example, "own_camera.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"0 0\.00 s \d+ spheres", lines[0])
    assert re.fullmatch(r"\d+ frames dropped", lines[-1])
