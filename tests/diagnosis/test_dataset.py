"""Every defect, made on purpose in good data, gives exactly the finding that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from gsslam.datasets import open_dataset
from gsslam.diagnosis.dataset import diagnose, diagnose_dataset
from gsslam.errors import DatasetError
from gsslam.frame import Frame
from gsslam.geometry import inverse
from tests.diagnosis.conftest import Change, Changed, Recording


def with_depth(factor: float) -> Change:
    return lambda frames: [replace(f, depth=f.depth * np.float32(factor)) for f in frames]


def with_camera(fx: float = 1.0, cx: float = 0.0) -> Change:
    def change(frames: list[Frame]) -> list[Frame]:
        c = frames[0].camera
        camera = replace(c, fx=fx * c.fx, fy=fx * c.fy, cx=c.cx + cx * c.width)
        return [replace(f, camera=camera) for f in frames]

    return change


def with_poses(*operations: str) -> Change:
    def moved(index: int, T: np.ndarray) -> np.ndarray:
        for operation in operations:
            if operation == "inverse":
                T = inverse(T)
            if operation == "opengl":
                T = T @ np.diag([1.0, -1.0, -1.0, 1.0])
            if operation == "nan" and index == 3:
                T = np.full((4, 4), np.nan)
            if operation == "scaled" and index == 3:
                T = T @ np.diag([2.0, 2.0, 2.0, 1.0])
        return T

    def change(frames: list[Frame]) -> list[Frame]:
        return [
            replace(f, T_world_camera=moved(i, f.T_world_camera))
            for i, f in enumerate(frames)
            if f.T_world_camera is not None
        ]

    return change


def with_other_poses(frames: list[Frame]) -> list[Frame]:
    """The poses of the way back at twice the speed."""
    poses = [frame.T_world_camera for frame in frames[::-2]] * 2
    return [replace(f, T_world_camera=T) for f, T in zip(frames, poses, strict=True)]


def with_shifted_depth(frames: list[Frame]) -> list[Frame]:
    return [replace(f, depth=np.roll(f.depth, (10, -4), (1, 0))) for f in frames]


def shuffled(frames: list[Frame]) -> list[Frame]:
    """Images and poses in the order 1, 10, 11, ..., 2, 20: names that are not padded."""
    order = sorted(range(20), key=lambda i: str(i + 1))
    return [replace(frames[i], index=k, timestamp=frames[k].timestamp) for k, i in enumerate(order)]


def with_times(*seconds: float) -> Change:
    def change(frames: list[Frame]) -> list[Frame]:
        return [
            replace(f, timestamp=t) for f, t in zip(frames, [*seconds, *range(9, 99)], strict=False)
        ]

    return change


def torn(frames: list[Frame]) -> list[Frame | None]:
    return [None if i in (4, 5) else frame for i, frame in enumerate(frames)]


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        (with_depth(5), "depth-scale", "about 5 times too large"),
        (with_depth(1 / 5), "depth-scale", "about 5 times too small"),
        (with_depth(1000), "depth-scale", "about 1000 times too large"),
        (with_depth(1 / 1000), "depth-scale", "about 1000 times too small"),
        (with_depth(1.31), "intrinsics", ""),  # cannot be told from a focal length
        (with_camera(fx=1.15), "intrinsics", "fit fx 2"),
        (with_camera(fx=0.7), "intrinsics", "fit fx 2"),
        (with_camera(cx=0.15), "intrinsics", "cx 1"),
        (with_poses("inverse"), "poses", "wrong way round"),
        (with_poses("opengl"), "poses", "OpenGL"),
        (with_poses("nan"), "poses", "pose 3 is NaN or infinite"),
        (with_poses("scaled"), "poses", "pose 3 is no rigid motion"),
        (with_other_poses, "poses", "no single cause explains it"),
        (with_shifted_depth, "registration", "10 pixels further right"),
        (shuffled, "order", "not in the order in which they were taken"),
        (with_times(0, 1, 2, np.nan), "timestamps", "1 of 20 frames have no time stamp"),
        (with_times(0, 2, 1, 3), "timestamps", "frame 2 (1.000000 s) is not later than frame 1"),
        (with_times(0, 1, 1, 3), "timestamps", "frame 2 (1.000000 s) is not later than frame 1"),
        (with_times(-30, 8), "timestamps", "38.00 s lie between frames 0 and 1, 1.000 s as a rule"),
        (torn, "images", "2 of 20 frames cannot be used; frame 4: image 4.png is truncated"),
    ],
)
def test_a_defect_gives_the_finding_that_names_it(
    room_frames: list[Frame], change: Change, check: str, words: str
) -> None:
    (finding,) = diagnose_dataset(Recording(change(room_frames)))
    assert finding.check == check
    assert words in finding.what
    assert finding.fix
    assert finding.is_problem


@pytest.mark.parametrize(("stride", "check"), [(14, "speed"), (40, "overlap")])
def test_a_camera_that_moves_too_far_between_frames(stride: int, check: str) -> None:
    room = open_dataset("synthetic/room", stride=stride, max_frames=6)
    (finding,) = diagnose_dataset(room)
    assert finding.check == check


REAL = [("tum/fr1_xyz", "tum_fr1_xyz"), ("7scenes/redkitchen", "seven_scenes_redkitchen")]


@pytest.mark.parametrize(("name", "folder"), REAL)
def test_real_data_is_well(name: str, folder: str, data_root: Path) -> None:
    assert diagnose(name, data_root / folder) == []


@pytest.mark.parametrize("name", ["synthetic/room", "synthetic/room_noisy"])
def test_synthetic_data_is_well(name: str) -> None:
    assert diagnose(name) == []


@pytest.mark.parametrize(("name", "folder"), REAL)
@pytest.mark.parametrize("factor", [5, 1 / 5, 1000, 1 / 1000])
@pytest.mark.parametrize("has_poses", [True, False])
def test_a_wrong_depth_scale_of_real_data(
    name: str, folder: str, factor: float, has_poses: bool, data_root: Path
) -> None:
    good = open_dataset(name, data_root / folder, resolution=(320, 240))
    frames = [replace(good[100 + i], index=i) for i in range(10)]
    if not has_poses:
        frames = [replace(frame, T_world_camera=None) for frame in frames]
    (finding,) = diagnose_dataset(Recording(with_depth(factor)(frames)))
    assert finding.check == "depth-scale"
    times = f"{max(factor, 1 / factor):g} times too {'large' if factor > 1 else 'small'}"
    assert (times in finding.what) if has_poses else (f"by {1 / factor:g};" in finding.fix)


@pytest.mark.parametrize(("name", "folder"), REAL)
def test_defects_of_real_data(name: str, folder: str, data_root: Path) -> None:
    good = open_dataset(name, data_root / folder, resolution=(320, 240))
    assert diagnose_dataset(Changed(good, with_depth(1))) == []
    for change, check in (
        (with_camera(fx=1.3), "intrinsics"),
        (with_poses("inverse"), "poses"),
        (with_poses("opengl"), "poses"),
        (with_shifted_depth, "registration"),
    ):
        assert [f.check for f in diagnose_dataset(Changed(good, change))] == [check]
    frames = shuffled([good[100 + i] for i in range(20)])
    assert [f.check for f in diagnose_dataset(Recording(frames))] == ["order"]


def write_folder(path: Path, frames: Sequence[Frame], scale: int, names: Sequence[str]) -> Path:
    for kind in ("rgb", "depth"):
        (path / kind).mkdir(parents=True)
    for frame, name in zip(frames, names, strict=True):
        assert cv2.imwrite(str(path / "rgb" / name), frame.rgb[..., ::-1])
        raw = np.rint(frame.depth * scale).astype(np.uint16)
        assert cv2.imwrite(str(path / "depth" / name), raw)
    c = frames[0].camera
    (path / "camera.yaml").write_text(
        f"{{width: {c.width}, height: {c.height}, fx: {c.fx}, fy: {c.fy}, cx: {c.cx}, cy: {c.cy}, "
        "pixel_centre: half, depth_scale: 1000}"
    )
    times = [float(Path(name).stem) if name.count(".") > 1 else 0 for name in names]
    if all(times[1:]):
        poses = np.stack([f.T_world_camera for f in frames if f.T_world_camera is not None])
        from gsslam.trajectory import Trajectory

        Trajectory(np.array(times), poses).write(path / "groundtruth.txt")
    return path


TIMES = [f"{i / 30:.6f}.png" for i in range(20)]


def test_a_folder_of_ones_own(room_frames: list[Frame], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "good", room_frames, 1000, TIMES)
    assert diagnose("folder", folder) == []
    folder = write_folder(tmp_path / "scale", room_frames, 5000, TIMES)
    (finding,) = diagnose("folder", folder)
    assert finding.check == "depth-scale"
    assert "set the depth scale to 5000 (it is 1000)" in finding.fix
    for path in (folder / "groundtruth.txt",):
        path.unlink()
    (finding,) = diagnose("folder", folder)
    assert "set the depth scale to 5000 (it is 1000)" in finding.fix
    # Five times too near may be right, as far as images without poses can tell: worth a word.
    folder = write_folder(tmp_path / "near", room_frames, 200, TIMES)
    (folder / "groundtruth.txt").unlink()
    (finding,) = diagnose("folder", folder)
    assert (finding.check, finding.is_problem) == ("depth-scale", False)
    assert finding.fix == "if this is a room, set the depth scale to 200 (it is 1000)"
    numbers = [f"frame{i + 1}.png" for i in range(20)]
    (finding,) = diagnose("folder", write_folder(tmp_path / "names", room_frames, 1000, numbers))
    assert (finding.check, finding.is_problem) == ("names", False)


def test_what_is_refused_at_the_door_is_a_finding(room_frames: list[Frame], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "sizes", room_frames, 1000, TIMES)
    for path in (folder / "depth").iterdir():
        assert cv2.imwrite(str(path), cv2.imread(str(path), cv2.IMREAD_UNCHANGED)[::2, ::2])
    (finding,) = diagnose("folder", folder)
    assert finding.check == "opening"
    assert "is 160x120 where the calibration says 320x240" in finding.what
    with pytest.raises(DatasetError, match="does not exist"):
        diagnose("folder", tmp_path / "none")
    with pytest.raises(DatasetError, match="unknown dataset"):
        diagnose("nowhere/none", tmp_path)
