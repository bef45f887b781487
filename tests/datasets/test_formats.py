"""Every format: what was written is what is read, by path and by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gsslam.camera import Camera
from gsslam.datasets import open_dataset
from gsslam.datasets.detect import detect_format
from gsslam.diagnosis.dataset import diagnose
from tests.datasets import recordings
from tests.datasets.bags import KINDS, room_bag
from tests.datasets.recordings import Shot, take


@dataclass(frozen=True)
class Case:
    format_name: str
    write: Callable[[Path, list[Shot]], Path]
    camera: Camera
    # Metres between two depths that a file can tell apart.
    depth_step: float
    # Mean difference of colours, 0 to 255, that the file's compression makes.
    colour_loss: float = 0.0
    # Depth pixels of the file to one of colour.
    depth_pixels: int = 1
    # Seconds.
    start_time: float = 0.0

    def take(self) -> list[Shot]:
        return take(self.camera, 3 if self.camera.width < 100 else 2, self.start_time)


CASES = {
    "tum": Case("tum", recordings.write_tum, recordings.SMALL, 1 / 5000),
    "folder": Case("folder", recordings.write_folder, recordings.SMALL, 1e-3),
    "video": Case("video", recordings.write_video, recordings.SMALL, 1e-3, 4.0),
    "replica": Case("replica", recordings.write_replica, recordings.SMALL, 1 / 6553.5, 8.0),
    "semantic": Case("replica", recordings.write_semantic_replica, recordings.SEMANTIC, 1e-3),
    "scannet": Case("scannet", recordings.write_scannet, recordings.SCANNET, 1e-3, 4.0),
    "icl_nuim": Case("icl_nuim", recordings.write_icl_nuim, recordings.ICL, 1 / 5000),
    "r3d": Case("record3d", lambda p, s: recordings.write_r3d(p.with_suffix(".r3d"), s),
                recordings.SMALL, 1e-6, 8.0, 2),
    "record3d": Case("record3d", recordings.write_record3d_folder, recordings.SMALL, 1e-6, 0, 2),
} | {
    kind: Case("bag", lambda p, s, kind=kind: room_bag(s).write(p.with_name(kind)),
               recordings.SMALL, 1e-3, start_time=1305031102.175304)
    for kind in KINDS
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_was_written_is_read(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    shots = case.take()
    place = case.write(tmp_path / "recording", shots)
    assert detect_format(place) == case.format_name
    dataset = open_dataset(str(place))
    assert dataset.name == f"{case.format_name}/{place.stem}"
    assert (dataset.camera.width, dataset.camera.height) == (case.camera.width, case.camera.height)
    np.testing.assert_allclose(dataset.camera.matrix(), case.camera.matrix(), atol=1e-6)
    np.testing.assert_allclose(dataset.timestamps, [s.timestamp for s in shots], atol=1e-6)
    truth = dataset.ground_truth
    assert truth is not None
    poses = np.stack([shot.T_world_camera for shot in shots])
    np.testing.assert_allclose(truth.T_world_camera, poses, atol=1e-6)
    for index, shot in enumerate(shots):
        frame = dataset[index]
        difference = np.abs(frame.rgb.astype(int) - shot.rgb)
        assert difference.mean() <= case.colour_loss
        n = case.depth_pixels
        expected = np.repeat(np.repeat(shot.depth[::n, ::n], n, axis=0), n, axis=1)
        np.testing.assert_allclose(frame.depth, expected, atol=0.51 * case.depth_step, rtol=1e-6)


@pytest.mark.parametrize("name", ["tum", "replica", "r3d", "single.mcap"])
def test_format_and_path_mean_the_same(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    place = case.write(tmp_path / "recording", case.take())
    by_path = open_dataset(str(place), stride=2, max_frames=1, resolution=(32, 24))
    by_format = open_dataset(case.format_name, place, stride=2, max_frames=1, resolution=(32, 24))
    assert by_format.name == by_path.name
    assert len(by_path) == len(by_format) == 1
    np.testing.assert_array_equal(by_path[0].rgb, by_format[0].rgb)
    np.testing.assert_array_equal(by_path[0].depth, by_format[0].depth)
    assert by_path[0].depth.shape == (24, 32)


@pytest.mark.parametrize("name", CASES)
def test_doctor_finds_nothing_wrong(name: str, tmp_path: Path) -> None:
    """Poses, intrinsics and depth agree with the images, whatever the format's conventions."""
    case = CASES[name]
    shots = take(case.camera, 6, case.start_time)
    place = case.write(tmp_path / "recording", shots)
    assert diagnose(str(place)) == []
