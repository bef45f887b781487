"""Bags with parts missing, truncated bags, and hostile ones."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gsslam.camera import Camera
from gsslam.cli import main
from gsslam.datasets import open_dataset
from gsslam.errors import BadFrameError, DatasetError
from tests.datasets import bags
from tests.datasets.bags import COLOUR, DEPTH, OPTICAL, Bag, camera_info, room_bag, without
from tests.datasets.recordings import SMALL, START, Shot

BAD = {
    "no depth": (lambda bag: without(bag, DEPTH), "has no depth topic: none of its topics"),
    "no colour": (lambda bag: without(bag, COLOUR), "has no colour topic"),
    "no images": (lambda bag: without(bag, "image"), "has no depth topic|has no colour topic"),
    "clocks": (lambda bag: moved(bag, DEPTH, 3.0), "none of 3 colour images .* within 20 ms"),
}  # fmt: skip


def moved(bag: Bag, topic: str, seconds: float) -> Bag:
    entries = []
    for name, kind, time, fields in bag.entries:
        at = fields["header"][1]["stamp"][1] if name == topic else {"sec": 0, "nanosec": 0}
        later = bags.header(at["sec"] + seconds + at["nanosec"] / 1e9, OPTICAL)
        entries.append((name, kind, time, fields | ({"header": later} if name == topic else {})))
    return Bag(entries)


@pytest.mark.parametrize("kind", ["ros1.bag", "single.mcap"])
@pytest.mark.parametrize("name", BAD)
def test_missing_parts_are_named(
    name: str, kind: str, shots: list[Shot], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, what = BAD[name]
    place = change(room_bag(shots)).write(tmp_path / kind)
    with pytest.raises(DatasetError, match=what):
        open_dataset(str(place))
    assert main(["run", "--dataset", str(place), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("kind", [*bags.KINDS])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.97])
def test_truncated_bags_are_explained(
    kind: str, keep: float, shots: list[Shot], tmp_path: Path
) -> None:
    place = room_bag(shots).write(tmp_path / kind)
    for file in [place] if place.is_file() else [p for p in place.iterdir() if p.suffix != ".yaml"]:
        data = file.read_bytes()
        file.write_bytes(data[: int(keep * len(data))])
    try:
        dataset = open_dataset(str(place))
    except DatasetError as error:
        assert re.search("truncated, damaged or no bag|has no index", str(error))
        assert "\n" not in str(error)
        return
    # A database may have lost pages that nobody needs.
    assert (place.suffix, keep) in ((".db3", 0.97), ("", 0.97))
    for index in range(len(dataset)):
        with contextlib.suppress(BadFrameError):
            _ = dataset[index]


def test_hostile_files_are_explained(tmp_path: Path) -> None:
    random = np.random.default_rng(0).bytes(5000)
    for name in ("a.bag", "a.mcap", "a.db3"):
        (tmp_path / name).write_bytes(random)
        with pytest.raises(DatasetError, match="truncated, damaged or no bag") as error:
            open_dataset(str(tmp_path / name))
        assert "\n" not in str(error.value)
    folder = tmp_path / "bag"
    folder.mkdir()
    (folder / "a.db3").write_bytes(random)
    for text in ("!!python/object/apply:os.system ['false']", "[1, 2", "a: 1", "", "&a [*a, *a]"):
        (folder / "metadata.yaml").write_text(text)
        with pytest.raises(DatasetError, match="truncated, damaged or no bag") as error:
            open_dataset(str(folder))
        assert "\n" not in str(error.value)


def test_flipped_bytes_never_crash(shots: list[Shot], tmp_path: Path) -> None:
    """Either the bag is refused, or frames are; nothing else may come out."""
    random = np.random.default_rng(1)
    for kind in ("ros1.bag", "single.mcap"):
        data = bytearray(room_bag(shots[:2]).write(tmp_path / kind).read_bytes())
        for trial in range(12):
            broken = bytearray(data)
            for position in random.integers(0, len(data), 20):
                broken[position] = random.integers(256)
            place = tmp_path / f"{trial}.{kind.rpartition('.')[2]}"
            place.write_bytes(broken)
            try:
                dataset = open_dataset(str(place))
                for index in range(len(dataset)):
                    _ = dataset[index]
            except DatasetError as error:
                assert "\n" not in str(error)


def test_one_bad_image_does_not_spoil_the_bag(shots: list[Shot], tmp_path: Path) -> None:
    bag = room_bag(shots)
    for index, entry in enumerate(bag.entries):
        if entry[0] == DEPTH:
            short = entry[3]["data"][:-500]
            bag.entries[index] = (*entry[:3], entry[3] | {"data": short})
            break
    dataset = open_dataset(str(bag.write(tmp_path / "ros2")))
    with pytest.raises(BadFrameError, match=r"truncated: \d+ bytes for 64x48"):
        _ = dataset[0]
    assert dataset[1].depth.any()


def test_size_that_differs_from_camera_info_is_refused(shots: list[Shot], tmp_path: Path) -> None:
    bag = without(room_bag(shots), "color/camera_info")
    wrong: Camera = replace(SMALL, width=128)
    info = camera_info(wrong, START, OPTICAL)
    bag.add("/camera/color/camera_info", "sensor_msgs/msg/CameraInfo", START, **info)
    with pytest.raises(DatasetError, match="64x48 where the calibration says 128x48"):
        open_dataset(str(bag.write(tmp_path / "ros2")))


def test_uncalibrated_camera_is_refused(shots: list[Shot], tmp_path: Path) -> None:
    bag = without(room_bag(shots), "color/camera_info")
    info = camera_info(SMALL, START, OPTICAL) | {"k": np.zeros(9)}
    bag.add("/camera/color/camera_info", "sensor_msgs/msg/CameraInfo", START, **info)
    with pytest.raises(DatasetError, match=r"camera info /camera/color/camera_info: focal lengths"):
        open_dataset(str(bag.write(tmp_path / "ros2")))
