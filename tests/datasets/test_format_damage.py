"""Bad input of every format but bags: one line that names the file and what is wrong."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from gsslam.cli import main
from gsslam.datasets import open_dataset
from gsslam.errors import BadFrameError, ConfigError, DatasetError
from tests.datasets import recordings
from tests.datasets.recordings import ICL, SCANNET, SMALL, take

Damage = Callable[[Path], object]
CASES: list[tuple[str, str, Damage, str]] = []


def case(written: str, name: str, what: str) -> Callable[[Damage], Damage]:
    """Register what is done to a recording, and what must be said of it."""

    def register(damage: Damage) -> Damage:
        CASES.append((written, name, damage, what))
        return damage

    return register


def rewrite(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def cut(path: Path, keep: float = 0.5) -> None:
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])


def cut_all(folder: Path) -> None:
    for path in folder.iterdir():
        cut(path)


case("tum", "no camera", r"has no camera\.yaml")(lambda p: (p / "camera.yaml").unlink())
case("tum", "tags", r"camera\.yaml is not valid YAML")(
    lambda p: (p / "camera.yaml").write_text("!!python/object/apply:os.system ['touch evil']")
)
case("tum", "nan pose", r"groundtruth\.txt, line 1: the pose is NaN")(
    lambda p: (p / "groundtruth.txt").write_text("0 nan 0 0 0 0 0 1")
)
case("tum", "huge camera", r"camera\.yaml: width: Input should be less than")(
    lambda p: (p / "camera.yaml").write_text(
        (p / "camera.yaml").read_text().replace("width: 64", "width: 64000000")
    )
)
case("tum", "large camera", "64x48 where the calibration says 20000x19000")(
    lambda p: (p / "camera.yaml").write_text(
        (p / "camera.yaml").read_text().replace(": 64", ": 20000").replace(": 48", ": 19000")
    )
)
case("tum", "truncated", "is truncated or damaged")(lambda p: cut_all(p / "depth"))
case("replica", "no poses' line", "3 colour images, 3 depth images and 2 poses")(
    lambda p: (p / "traj.txt").write_text("\n".join((p / "traj.txt").read_text().splitlines()[:2]))
)
case("replica", "nan pose", r"traj\.txt, line 1: the pose is NaN")(
    lambda p: (p / "traj.txt").write_text(("nan " + "0 " * 15 + "\n") * 3)
)
case("replica", "scaled pose", r"traj\.txt, line 1 is no rigid motion: its determinant is 8")(
    lambda p: (p / "traj.txt").write_text(("2 0 0 0 0 2 0 0 0 0 2 0 0 0 0 1\n") * 3)
)
case("replica", "words", r"traj\.txt, line 1: expected the 16 numbers")(
    lambda p: (p / "traj.txt").write_text("hello\n" * 3)
)
case("replica", "no images", r"results has no image called depth\*")(
    lambda p: [path.unlink() for path in (p / "results").glob("depth*")]
)
case("replica", "bad json", r"cannot read .*cam_params\.json")(
    lambda p: (p.parent / "cam_params.json").write_text("{")
)
case("replica", "deep json", r"cannot read .*cam_params\.json")(
    lambda p: (p.parent / "cam_params.json").write_text("[" * 100_000)
)
case("replica", "no camera", r"cam_params\.json: Field required")(
    lambda p: rewrite(p.parent / "cam_params.json", lambda v: v["camera"].pop("fx"))
)
case("replica", "other size", "64x48 where the calibration says 65x48")(
    lambda p: rewrite(p.parent / "cam_params.json", lambda v: v["camera"].update(w=65))
)
case("scannet", "no intrinsics", r"cannot read pose .*intrinsic_depth\.txt")(
    lambda p: (p / "intrinsic" / "intrinsic_depth.txt").unlink()
)
case("scannet", "short pose", r"0\.txt has 3 numbers")(
    lambda p: (p / "pose" / "0.txt").write_text("1 2 3")
)
case("scannet", "no color", "color has no PNG or JPEG")(
    lambda p: [path.unlink() for path in (p / "color").iterdir()]
)
case("scannet", "names", "no images 0, 1, 2 ... in common")(
    lambda p: [path.rename(path.with_stem("x" + path.stem)) for path in (p / "depth").iterdir()]
)
case("scannet", "wild K", r"intrinsic_color\.txt: focal lengths")(
    lambda p: (p / "intrinsic" / "intrinsic_color.txt").write_text("0 " * 16)
)
case("icl_nuim", "words", r"associations\.txt, line 1: expected number, depth")(
    lambda p: (p / "associations.txt").write_text("0 depth/0.png")
)
case("icl_nuim", "no frame", "there is no frame")(
    lambda p: (p / "associations.txt").write_text("# nothing\n")
)
case("icl_nuim", "nan", r"freiburg, line 1: the pose is NaN")(
    lambda p: (p / "livingRoom0.gt.freiburg").write_text("0 inf 0 0 0 0 0 1")
)
case("video", "count", "rgb.mkv has 3 frames but .*depth has 2 images")(
    lambda p: (p / "depth" / "1.png").unlink()
)
case("video", "no video", "is truncated, damaged or no video")(
    lambda p: (p / "rgb.mkv").write_bytes(bytes(1000))
)
case("video", "two videos", "has 2 videos")(
    lambda p: (
        [shutil.copy(p / "rgb.mkv", p / "a.mkv"), (p / "rgb.mkv").rename(p / "rgb2.mkv")]
        and (p / "rgb.txt").touch()
    )
)
case("video", "size", "64x48 where the calibration says 32x48")(
    lambda p: (p / "camera.yaml").write_text(
        (p / "camera.yaml").read_text().replace("width: 64", "width: 32")
    )
)
case("record3d", "bad json", "metadata are no JSON")(
    lambda p: (p / "metadata.json").write_text("{")
)
case("record3d", "no K", "metadata: K: Field required")(
    lambda p: rewrite(p / "metadata.json", lambda v: v.pop("K"))
)
case("record3d", "NaN in K", "metadata: K.0: Input should be a finite number")(
    lambda p: rewrite(p / "metadata.json", lambda v: v.update(K=[float("nan")] * 9))
)
case("record3d", "no focal length", "describe no camera")(
    lambda p: rewrite(
        p / "metadata.json", lambda v: v.update(K=[0] * 9, perFrameIntrinsicCoeffs=[])
    )
)
case("record3d", "cut depth", r"depth/0\.exr is truncated, damaged or no EXR")(
    lambda p: cut_all(p / "depth")
)
case("record3d", "nothing", "no frames with colour and depth")(
    lambda p: [path.unlink() for path in (p / "rgb").iterdir()]
)
case("r3d", "cut", "is truncated, damaged or no .r3d file")(cut)
case("r3d", "another zip", "has no frames|has no metadata")(
    lambda p: zipfile.ZipFile(p, "w").writestr("../evil", "x")
)


def written(name: str, folder: Path) -> Path:
    shots = take(
        {"scannet": SCANNET, "icl_nuim": ICL}.get(name, SMALL), 3 if name != "scannet" else 1
    )
    path = folder / ("scan.r3d" if name == "r3d" else "scan")
    return getattr(recordings, "write_record3d_folder" if name == "record3d" else f"write_{name}")(
        path, shots
    )


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("name", "damage", "what"),
    [pytest.param(name, damage, what, id=f"{name}-{label}") for name, label, damage, what in CASES],
)
def test_damage_is_explained(
    name: str, damage: Damage, what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = written(name, tmp_path)
    damage(place)
    format_name = {"r3d": "record3d"}.get(name, name)
    with pytest.raises(DatasetError, match=what):
        open_dataset(format_name, place)
    capfd.readouterr()
    arguments = ["run", "--dataset", format_name, "--path", str(place)]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    # FFmpeg keeps the voice that it had when this process wrote the video; see below.
    lines = [line for line in capfd.readouterr().err.splitlines() if "matroska" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("gsslam: ")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*evil*"))


def test_damaged_video_is_one_line_in_a_process_of_its_own(tmp_path: Path) -> None:
    place = written("video", tmp_path)
    (place / "rgb.mkv").write_bytes(bytes(1000))
    command = [sys.executable, "-m", "gsslam", "run", "--dataset", "video", "--path", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"gsslam: {place / 'rgb.mkv'} is truncated, damaged or no video\n"


def test_one_bad_frame_does_not_spoil_a_recording(tmp_path: Path) -> None:
    for name in ("r3d", "record3d", "video"):
        place = written(name, tmp_path / name) if (tmp_path / name).mkdir() is None else tmp_path
        if name == "r3d":
            with zipfile.ZipFile(place) as old:
                members = {info.filename: old.read(info) for info in old.infolist()}
            members["rgbd/1.depth"] = members["rgbd/1.depth"][:40]
            with zipfile.ZipFile(place, "w") as new:
                for member, data in members.items():
                    new.writestr(member, data)
        else:
            cut(place / "depth" / ("1.png" if name == "video" else "1.exr"))
        dataset = open_dataset(str(place))
        with pytest.raises(BadFrameError, match="1"):
            _ = dataset[1]
        assert dataset[2].depth.any()


def test_scannet_frames_without_a_pose(tmp_path: Path) -> None:
    place = recordings.write_scannet(tmp_path / "scene0000_00", take(SCANNET, 2))
    (place / "pose" / "1.txt").write_text("-inf " * 16)
    dataset = open_dataset(str(place))
    assert dataset.name == "scannet/scene0000_00"
    assert dataset[0].T_world_camera is not None
    assert dataset[1].T_world_camera is None
    assert dataset.ground_truth is not None
    assert len(dataset.ground_truth) == 1


def test_scannet_in_its_two_resolutions(tmp_path: Path) -> None:
    """Colour of 1296 x 968 and depth of 640 x 480, as the scanner's are."""
    place = recordings.write_scannet(tmp_path / "scene", take(SCANNET, 1))
    small = open_dataset(str(place))[0]
    large = cv2.resize(cv2.imread(str(place / "color" / "0.jpg")), (1296, 968))
    cv2.imwrite(str(place / "color" / "0.jpg"), large)
    dataset = open_dataset(str(place))
    assert (dataset.camera.width, dataset.camera.height) == (1296, 968)
    np.testing.assert_allclose(
        dataset.camera.resized(640, 480).matrix(), SCANNET.matrix(), atol=1e-6
    )
    np.testing.assert_array_equal(
        open_dataset(str(place), resolution=(640, 480))[0].depth, small.depth
    )


def test_video_can_be_read_in_any_order(tmp_path: Path) -> None:
    shots = take(SMALL, 14)
    dataset = open_dataset(str(recordings.write_video(tmp_path / "scan", shots)))
    for index in (13, 0, 5, 4, 12, 1, 1, 13):
        assert np.abs(dataset[index].rgb.astype(int) - shots[index].rgb).mean() < 4


def test_record3d_without_a_pose(tmp_path: Path) -> None:
    place = recordings.write_record3d_folder(tmp_path / "scan", take(SMALL, 3))
    rewrite(place / "metadata.json", lambda v: v["poses"].__setitem__(1, [float("nan")] * 7))
    dataset = open_dataset(str(place))
    assert [dataset[i].T_world_camera is None for i in range(3)] == [False, True, False]


def test_missing_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = recordings.write_r3d(tmp_path / "a.r3d", take(SMALL, 1))
    (tmp_path / "a.bag").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "lzfse", None)
    monkeypatch.setitem(sys.modules, "rosbags.highlevel", None)
    with pytest.raises(
        ConfigError, match=r"\.r3d files needs lzfse .*pip install 'gsslam\[record3d\]'"
    ):
        open_dataset(str(place))
    with pytest.raises(ConfigError, match=r"bags needs rosbags.* pip install 'gsslam\[bags\]'"):
        open_dataset(str(tmp_path / "a.bag"))
