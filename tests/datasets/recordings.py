"""Small recordings of the synthetic room in every format that gsslam reads, with known answers."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import lzfse
import numpy as np
import OpenEXR
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.datasets.room import build_room, camera_pose
from gsslam.datasets.scene import render
from gsslam.geometry import quaternion_from_matrix

# A camera of one's own; its principal point lies where the formats' conventions show.
SMALL = Camera(64, 48, 56.0, 55.0, 32.5, 23.0)
# Seconds: when recordings of bags begin.
START = 1700000000.25


@dataclass(frozen=True)
class Shot:
    """A frame as it was before anything was written."""

    rgb: NDArray[np.uint8]
    # Metres.
    depth: NDArray[np.float64]
    T_world_camera: NDArray[np.float64]
    timestamp: float

    def depth_image(self, scale: float) -> NDArray[np.uint16]:
        """The depth as integers, ``scale`` at one metre."""
        return np.rint(self.depth * scale).astype(np.uint16)


def take(camera: Camera, count: int = 3, start_time: float = 0.0) -> list[Shot]:
    """Render the first frames of the room."""
    shots = []
    for index in range(count):
        pose = camera_pose(3 * index)
        colour, cast = render(build_room(), camera, pose)
        rgb = np.rint(colour * 255).astype(np.uint8)
        shots.append(Shot(rgb, cast.depth.astype(np.float64), pose, start_time + index / 30))
    return shots


def write_png(path: Path, image: NDArray[np.generic]) -> None:
    """Write an RGB or a depth image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.ndim == 3 else image
    assert cv2.imwrite(str(path), image)


def tum_row(pose: NDArray[np.float64]) -> str:
    """Position and quaternion (x, y, z, w) as in a TUM file."""
    return " ".join(f"{v:.9f}" for v in [*pose[:3, 3], *quaternion_from_matrix(pose[:3, :3])])


def matrix_text(matrix: NDArray[np.float64], separator: str = "\n") -> str:
    return separator.join(" ".join(f"{v:.9f}" for v in row) for row in matrix) + "\n"


def camera_yaml(camera: Camera, depth_scale: float) -> str:
    """A ``camera.yaml``, pixel centres at integers."""
    return (
        f"width: {camera.width}\nheight: {camera.height}\nfx: {camera.fx}\nfy: {camera.fy}\n"
        f"cx: {camera.cx - 0.5}\ncy: {camera.cy - 0.5}\ndepth_scale: {depth_scale}\n"
    )


def write_tum(folder: Path, shots: list[Shot], camera: Camera = SMALL) -> Path:
    lists: dict[str, list[str]] = {"rgb": [], "depth": []}
    truth = []
    for shot in shots:
        name = f"{shot.timestamp:.6f}.png"
        write_png(folder / "rgb" / name, shot.rgb)
        write_png(folder / "depth" / name, shot.depth_image(5000))
        for kind, lines in lists.items():
            lines.append(f"{shot.timestamp:.6f} {kind}/{name}")
        truth.append(f"{shot.timestamp:.6f} {tum_row(shot.T_world_camera)}")
    for kind, lines in lists.items():
        (folder / f"{kind}.txt").write_text("# made by a test\n" + "\n".join(lines))
    (folder / "groundtruth.txt").write_text("\n".join(truth))
    (folder / "camera.yaml").write_text(camera_yaml(camera, 5000))
    return folder


def write_folder(folder: Path, shots: list[Shot], camera: Camera = SMALL) -> Path:
    for index, shot in enumerate(shots):
        write_png(folder / "rgb" / f"{index}.png", shot.rgb)
        write_png(folder / "depth" / f"{index}.png", shot.depth_image(1000))
    (folder / "camera.yaml").write_text(camera_yaml(camera, 1000))
    truth = "\n".join(f"{s.timestamp:.6f} {tum_row(s.T_world_camera)}" for s in shots)
    (folder / "groundtruth.txt").write_text(truth)
    return folder


def write_video(folder: Path, shots: list[Shot], camera: Camera = SMALL) -> Path:
    write_folder(folder, shots, camera)
    size = (camera.width, camera.height)
    fourcc = cv2.VideoWriter.fourcc(*"FFV1")  # lossless, but for the change to YUV
    writer = cv2.VideoWriter(str(folder / "rgb.mkv"), cv2.CAP_FFMPEG, fourcc, 30, size)
    assert writer.isOpened()
    for index, shot in enumerate(shots):
        writer.write(cv2.cvtColor(shot.rgb, cv2.COLOR_RGB2BGR))
        (folder / "rgb" / f"{index}.png").unlink()
    writer.release()
    (folder / "rgb").rmdir()
    return folder


def write_replica(folder: Path, shots: list[Shot], camera: Camera = SMALL) -> Path:
    """NICE-SLAM's layout: the scene's folder below one with cam_params.json."""
    scene = folder / "room0"
    for index, shot in enumerate(shots):
        write_png(scene / "results" / f"frame{index:06d}.jpg", shot.rgb)
        write_png(scene / "results" / f"depth{index:06d}.png", shot.depth_image(6553.5))
    lines = [matrix_text(shot.T_world_camera, " ") for shot in shots]
    (scene / "traj.txt").write_text("".join(lines))
    values = {"w": camera.width, "h": camera.height, "fx": camera.fx, "fy": camera.fy}
    values |= {"cx": camera.cx - 0.5, "cy": camera.cy - 0.5, "scale": 6553.5}
    (folder / "cam_params.json").write_text(json.dumps({"camera": values}))
    return scene


SEMANTIC = Camera(640, 480, 320, 320, 320, 240)


def write_semantic_replica(folder: Path, shots: list[Shot]) -> Path:
    for index, shot in enumerate(shots):
        write_png(folder / "rgb" / f"rgb_{index}.png", shot.rgb)
        write_png(folder / "depth" / f"depth_{index}.png", shot.depth_image(1000))
    lines = [matrix_text(shot.T_world_camera, " ") for shot in shots]
    (folder / "traj_w_c.txt").write_text("".join(lines))
    return folder


SCANNET = Camera(640, 480, 570, 571, 321, 243)


def write_scannet(folder: Path, shots: list[Shot]) -> Path:
    """As exported with colour at the size of depth; intrinsics are for 1296 x 968 as always."""
    for index, shot in enumerate(shots):
        write_png(folder / "color" / f"{index}.jpg", shot.rgb)
        write_png(folder / "depth" / f"{index}.png", shot.depth_image(1000))
        (folder / "pose").mkdir(exist_ok=True)
        (folder / "pose" / f"{index}.txt").write_text(matrix_text(shot.T_world_camera))
    (folder / "intrinsic").mkdir()
    for name, camera in (("color", SCANNET.resized(1296, 968)), ("depth", SCANNET)):
        K = np.eye(4)
        K[:3, :3] = camera.matrix()
        K[:2, 2] -= 0.5
        (folder / "intrinsic" / f"intrinsic_{name}.txt").write_text(matrix_text(K))
        (folder / "intrinsic" / f"extrinsic_{name}.txt").write_text(matrix_text(np.eye(4)))
    return folder


ICL = Camera(640, 480, 481.2, 480, 320, 240)


def write_icl_nuim(folder: Path, shots: list[Shot]) -> Path:
    """Poses and world as seen by a camera with y up, as fy = -480 says."""
    mirror = np.diag([1.0, -1.0, 1.0, 1.0])
    rows, truth = [], []
    for index, shot in enumerate(shots):
        write_png(folder / "rgb" / f"{index}.png", shot.rgb)
        write_png(folder / "depth" / f"{index}.png", shot.depth_image(5000))
        rows.append(f"{index} depth/{index}.png {index} rgb/{index}.png")
        truth.append(f"{index} {tum_row(mirror @ shot.T_world_camera @ mirror)}")
    (folder / "associations.txt").write_text("\n".join(rows))
    (folder / "livingRoom0.gt.freiburg").write_text("\n".join(truth))
    return folder


def _record3d_metadata(shots: list[Shot], camera: Camera) -> dict[str, object]:
    """Record3D's camera has y up and looks along -z; its depth has half of the pixels here."""
    poses = []
    for shot in shots:
        T = shot.T_world_camera @ np.diag([1.0, -1.0, -1.0, 1.0])
        poses.append([*quaternion_from_matrix(T[:3, :3]), *T[:3, 3]])
    return {
        "w": camera.width,
        "h": camera.height,
        "dw": camera.width // 2,
        "dh": camera.height // 2,
        "fps": 30,
        "K": [camera.fx, 0, 0, 0, camera.fy, 0, camera.cx, camera.cy, 1],
        "poses": poses,
        "frameTimestamps": [shot.timestamp for shot in shots],
        "perFrameIntrinsicCoeffs": [[camera.fx, camera.fy, camera.cx, camera.cy] for _ in shots],
    }


def _half(depth: NDArray[np.float64]) -> NDArray[np.float32]:
    return depth[::2, ::2].astype(np.float32)


def write_r3d(path: Path, shots: list[Shot], camera: Camera = SMALL) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata", json.dumps(_record3d_metadata(shots, camera)))
        for index, shot in enumerate(shots):
            bgr = cv2.cvtColor(shot.rgb, cv2.COLOR_RGB2BGR)
            file.writestr(f"rgbd/{index}.jpg", cv2.imencode(".jpg", bgr)[1].tobytes())
            file.writestr(f"rgbd/{index}.depth", lzfse.compress(_half(shot.depth).tobytes()))
    return path


def write_record3d_folder(folder: Path, shots: list[Shot], camera: Camera = SMALL) -> Path:
    (folder / "depth").mkdir(parents=True)
    for index, shot in enumerate(shots):
        write_png(folder / "rgb" / f"{index}.png", shot.rgb)
        header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
        channels = {"R": _half(shot.depth)}
        OpenEXR.File(header, channels).write(str(folder / "depth" / f"{index}.exr"))
    (folder / "metadata.json").write_text(json.dumps(_record3d_metadata(shots, camera)))
    return folder
