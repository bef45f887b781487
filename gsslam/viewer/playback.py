"""A finished run in the browser, frame by frame."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gsslam.camera import Camera
from gsslam.errors import BadFrameError, DatasetError, GsslamError
from gsslam.evaluation.records import FrameRecord
from gsslam.export.ply import read_ply
from gsslam.frame import Frame
from gsslam.run_folder import RunFolder
from gsslam.source import Source
from gsslam.trajectory import Trajectory
from gsslam.viewer.layers import ERROR, frame_picture, layers_of
from gsslam.viewer.paths import truth_in_world
from gsslam.viewer.scene import Scene
from gsslam.viewer.server import DEFAULT_PORT, LOOPBACK, address_of, start_server, stop_server
from gsslam.viewer.spheres import Spheres

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset

Array = NDArray[np.float64]

# Seconds between frames that play.
_FRAME_TIME = 0.1
# Of the image's width, where the run's camera cannot be asked for.
_USUAL_FOCAL_LENGTH = 0.85


class Playback:
    """Shows the map of a run folder, and every frame at its pose, until it is closed."""

    def __init__(
        self,
        folder: RunFolder,
        dataset: Dataset | None,
        *,
        problem: str = "",
        host: str = LOOPBACK,
        port: int = DEFAULT_PORT,
    ) -> None:
        """Raise DatasetError where the folder is incomplete, ConfigError as LiveViewer does.

        Without the ``dataset``, for the reason ``problem``, there are no images and no truth.
        """
        self.problem = problem
        self._dataset = dataset
        self._low_pass = folder.read_config()[0].map.low_pass
        self._metrics = folder.read_metrics()
        self._records = [record for record in folder.read_frames() if record.seen]
        self._poses = Trajectory.read(folder.trajectory).T_world_camera
        if not self._records or len(self._records) != len(self._poses):
            raise DatasetError(f"{folder.path} is damaged: its frames and poses differ in number")
        self._spheres = Spheres.of_state(read_ply(folder.map))
        self._camera = dataset.camera if dataset else _usual_camera(self._metrics)
        self._server = start_server(host, port)
        self.address = address_of(self._server)
        self._changed = threading.Event()
        title = f"gsslam: {self._metrics.get('dataset', folder.path.name)}"
        self._scene = Scene(self._server, self._camera, title=title, on_change=self._changed.set)
        self._add_slider()
        self._closing = False
        self._draw_run()
        self._thread = threading.Thread(target=self._serve, name="gsslam-viewer", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        dataset_path: Path | None = None,
        host: str = LOOPBACK,
        port: int = DEFAULT_PORT,
    ) -> Playback:
        """Show the run folder ``path``; ``dataset_path`` says where its dataset lies now."""
        folder = RunFolder(path)
        source = Source.from_values(folder.read_config()[1])
        if dataset_path is not None:
            source = replace(source, path=dataset_path)
        dataset, problem = None, ""
        try:
            dataset = source.open()
        except GsslamError as error:
            problem = str(error)
        return cls(folder, dataset, problem=problem, host=host, port=port)

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the viewer."""
        self._closing = True
        self._changed.set()
        self._thread.join(timeout=5.0)
        stop_server(self._server)

    def show(self, position: int) -> None:
        """Go to a frame, counted among those that have a pose."""
        self._slider.value = position  # type: ignore[misc]

    def _add_slider(self) -> None:
        last = max(len(self._records) - 1, 1)
        gui = self._server.gui
        self._slider = gui.add_slider("Frame", min=0, max=last, step=1, initial_value=0, order=-2)
        self._play = gui.add_checkbox("Play", False, order=-1)
        for control in (self._slider, self._play):
            control.on_update(lambda event: self._changed.set())

    def _serve(self) -> None:
        """Draw again whenever something was changed; the viewer's thread."""
        while not self._closing:
            playing = bool(self._play.value)
            if self._changed.wait(_FRAME_TIME if playing else None):
                self._changed.clear()
                self._draw_run()
            elif playing:
                # Which the slider reports as a change.
                self.show((int(self._slider.value) + 1) % len(self._records))

    def _draw_run(self) -> None:
        position = min(int(self._slider.value), len(self._records) - 1)
        record, pose, scene = self._records[position], self._poses[position], self._scene
        scene.offer_layers(layers_of(self._spheres, has_images=self._dataset is not None))
        scene.place(pose, self._median_depth(pose))
        scene.show_spheres(self._spheres, pose)
        scene.show_path(self._poses[:, :3, 3])
        keyframes = [self._poses[i] for i, record in enumerate(self._records) if record.keyframe]
        scene.show_keyframes(np.array(keyframes).reshape(-1, 4, 4))
        self._draw_truth()
        scene.show_camera(pose, self._image_of(position), is_lost=record.status == "lost")
        scene.show_numbers(self._numbers(record))

    def _draw_truth(self) -> None:
        truth = None if self._dataset is None else self._dataset.ground_truth
        if truth is None or not len(truth):
            return
        times = np.array([record.timestamp for record in self._records], dtype=np.float64)
        pairs = [
            (pose, true)
            for pose, true in zip(self._poses, truth.nearest(times, 1e-3), strict=True)
            if true is not None
        ]
        if pairs:
            estimate, true = (np.array(list(side)) for side in zip(*pairs, strict=True))
            self._scene.show_truth(truth_in_world(estimate, true)[:, :3, 3])

    def _image_of(self, position: int) -> NDArray[np.uint8]:
        """Return a frame's image in the chosen layer; without images, the map in its place."""
        record, pose, layer = self._records[position], self._poses[position], self._scene.layer
        frame = self._read(record)
        if frame is not None and layer != ERROR:
            return frame_picture(layer, frame, None)
        exposure = (record.gain or 1.0, record.bias or 0.0)
        view = self._spheres.view(self._camera, pose, self._low_pass, exposure)
        if frame is None:
            return np.asarray(255 * np.clip(view.colour, 0, 1), dtype=np.uint8)
        return frame_picture(layer, frame, view)

    def _median_depth(self, pose: Array) -> float:
        depth = self._spheres.view(self._camera, pose, self._low_pass).depth
        return float(np.median(depth[depth > 0])) if (depth > 0).any() else 1.0

    def _read(self, record: FrameRecord) -> Frame | None:
        if self._dataset is None:
            return None
        try:
            return self._dataset[record.index]
        except (BadFrameError, IndexError):
            return None

    def _numbers(self, record: FrameRecord) -> dict[str, str]:
        """Return the numbers of the frame, then those of the run; what is unknown is left out."""
        status = record.status if not record.reason else f"{record.status}: {record.reason}"
        numbers: dict[str, str] = {"frame": f"{record.index}, {status}"}
        for name, value, text in (
            ("position error", record.position_error_cm, "{:.2f} cm"),
            ("PSNR", record.psnr_db, "{:.2f} dB"),
            ("ATE RMSE", self._metrics.get("ate_rmse_cm"), "{:.2f} cm"),
            ("PSNR, all frames", self._metrics.get("psnr_db"), "{:.2f} dB"),
            ("frames/s", self._metrics.get("frames_per_s"), "{:.1f}"),
            ("spheres", self._spheres.parameters.shape[1], "{:,}"),
            ("peak memory", self._metrics.get("peak_memory_mb"), "{:,.0f} MB"),
        ):
            if value is not None:
                numbers[name] = text.format(value)
        return numbers


def _usual_camera(metrics: dict[str, object]) -> Camera:
    """Return a camera of the run's size, with a focal length as most have."""
    width, height = int(str(metrics["width"])), int(str(metrics["height"]))
    focal_length = _USUAL_FOCAL_LENGTH * width
    return Camera(width, height, focal_length, focal_length, width / 2, height / 2)
