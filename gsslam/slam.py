"""RGB-D SLAM: frames in, poses and a map of spheres out."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.device import resolve_device
from gsslam.errors import TrackingError
from gsslam.features.map_features import MapFeatures
from gsslam.features.teacher import Teacher
from gsslam.frame import Frame
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe, is_heldout, keyframe_is_due
from gsslam.localization import Localizer
from gsslam.mapping import Mapper
from gsslam.mapping_thread import MappingThread
from gsslam.memory import MEGABYTE, RECORD_BYTES, MemoryUse, tensor_bytes, working_bytes
from gsslam.pyramid import FrameBuffers, ImageLevel
from gsslam.recorder import recorder
from gsslam.rendering import render_view
from gsslam.results import RenderedView, TrackingResult
from gsslam.slam_state import SlamState, of_prefix, with_prefix
from gsslam.snapshot import MapSnapshot, OnMap
from gsslam.trace import Trace
from gsslam.tracked_frames import TrackedFrames
from gsslam.tracking import PoseEstimate
from gsslam.tracking_result import tracking_result
from gsslam.trajectory import Trajectory
from gsslam.work_stream import WorkStream

Array = NDArray[np.float64]


class Slam:
    """Tracks frames one after the other; builds the map beside that, in a thread of its own.

    Tracking sees the map with a keyframe a fixed number of frames after it, whenever mapping was
    done: the result is the same to the byte with one thread and with two, on a fast and on a slow
    computer. To be closed, or used in a ``with`` statement. Only one thread may call it at a time.
    """

    def __init__(
        self,
        config: SlamConfig,
        camera: Camera,
        device: str = "cpu",
        *,
        threads: int = 2,
        realtime: bool = False,
        trace: Trace | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        """Raise ConfigError for a ``device``, "cpu" or "cuda", that cannot be used.

        With one of ``threads``, mapping is done inside ``track``. ``realtime`` never waits for
        mapping and takes what it has done so far; the result depends on the computer's speed then.
        ``teacher`` takes the place of the encoder that the configuration names for features.
        """
        self._device = torch.device(resolve_device(device))
        self._config, self._camera, self._realtime = config, camera, realtime
        self._trace = trace or Trace()
        # Frames come at their own rate, while mapping has until the next keyframe.
        self._stream = WorkStream(self._device, urgent=True)
        self._localizer = Localizer(config.tracking, config.map.low_pass, self._device)
        self._mapper = Mapper(config, camera, self._device, teacher)
        beside = threads > 1
        self._mapping = MappingThread(self._mapper, self._device, self._trace, own_thread=beside)
        self._snapshot = MapSnapshot(self._mapper.map)
        self._buffers = FrameBuffers(camera, config.tracking.levels, self._device)
        # As it was when mapping was last at rest, with the images that were handed over since.
        self._mapping_memory = self._mapper.memory()
        self._frames = TrackedFrames()
        self._exposure, self._last_tracked = (1.0, 0.0), False
        self._keyframe_at = 0  # position of the newest keyframe in tracking order
        self._waiting_ms = self._mapping_ms = 0.0

    def __enter__(self) -> Slam:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the mapping thread."""
        self._mapping.close()

    @property
    def map(self) -> GaussianMap:
        """The spheres, after waiting for the keyframe that is being mapped."""
        self._mapping.wait()
        return self._mapper.map

    @property
    def keyframes(self) -> list[Keyframe]:
        """What the map was built from, oldest first, after the same wait."""
        self._mapping.wait()
        return self._mapper.keyframes

    @property
    def features(self) -> MapFeatures:
        """What the spheres have learned, after the same wait; ConfigError where that is nothing."""
        self._mapping.wait()
        return self._mapper.features

    def memory(self) -> MemoryUse:
        """Return what the memory budget counts, mapping's share when its result was last taken."""
        pixels = self._camera.width * self._camera.height
        buffers = working_bytes(pixels) + RECORD_BYTES * len(self._frames)
        tracking = self._snapshot.memory() + self._localizer.memory() + MemoryUse(buffers=buffers)
        return self._mapping_memory + tracking

    def watch(self, on_map: OnMap) -> TrackedFrames:
        """Tell ``on_map`` of every map that tracking sees; return the frames, to be read only."""
        self._snapshot.on_renewed = on_map
        return self._frames

    def track(self, frame: Frame) -> TrackingResult:
        """Find the pose of the next frame, and map it if it is a keyframe.

        Raises TrackingError if the frame's camera is not the one given at the start, or if the
        first frame has no depth to start a map from; and what went wrong in mapping, a fixed
        number of frames after the keyframe.
        """
        if frame.camera != self._camera:
            raise TrackingError(f"frame {frame.index} comes from another camera than the first")
        with self._stream.use():
            return self._track(frame)

    def _track(self, frame: Frame) -> TrackingResult:
        self._waiting_ms = self._mapping_ms = 0.0
        self._take_mapping_if_due()
        recorder.set_context(step=frame.index, map_version=self._snapshot.version)
        start = time.perf_counter()
        with self._trace.span("tracking", frame.index):
            pyramid = self._buffers.load(frame)
            estimate, reason = self._find_pose(frame, pyramid)
            T_camera_world = self._settle(estimate, reason)
        tracking_ms = 1000 * (time.perf_counter() - start)
        is_keyframe = not reason and self._wants_keyframe(frame.index, pyramid[0], estimate)
        if is_keyframe:
            T_camera_world = self._make_keyframe(frame.index, pyramid[0], T_camera_world)
        self._frames.add(frame.timestamp, T_camera_world)
        self._last_tracked = not reason
        if is_keyframe and self._config.mapping.publish_after == 0:
            self._take_mapping()
        return tracking_result(
            frame,
            estimate,
            reason,
            is_keyframe=is_keyframe,
            T_world_camera=geometry.inverse(self._frames.pose(-1)),
            exposure=self._exposure,
            snapshot=self._snapshot,
            times_ms=(tracking_ms, self._mapping_ms, self._waiting_ms),
            memory_mb=self.memory().total / MEGABYTE,
        )

    def finish(self) -> Trajectory:
        """Settle the map's brightness and features; return the poses of all frames, as tracked.

        Frames may still be tracked afterwards. Raises what went wrong in mapping; called again, it
        returns what there was before that.
        """
        if self._mapping.busy:
            self._take_mapping()
        if self._mapper.keyframes:
            self._mapper.finish()
            self._snapshot.renew(self._mapper.map)
            newest = self._mapper.keyframes[-1]
            self._exposure = (newest.gain, newest.bias)
        return self._frames.trajectory()

    def render(self, T_world_camera: Array, camera: Camera | None = None) -> RenderedView:
        """Return the map seen from a pose, by default with the camera of the sequence."""
        spheres, low_pass = self.map, self._config.map.low_pass
        camera = camera or self._camera
        return render_view(spheres.parameters, spheres.count, camera, T_world_camera, low_pass)

    def state(self) -> SlamState:
        """Return that from which ``restore`` goes on to the same bytes.

        Waits for the keyframe that is being mapped. Images are not among them: keyframes are told
        by their index in the sequence.
        """
        pending_ms = self._mapping.peek()
        map_arrays, map_values = self._mapper.state()
        arrays = {**with_prefix("map", map_arrays), **with_prefix("frames", self._frames.state())}
        arrays |= with_prefix("localizer", self._localizer.state())
        arrays |= with_prefix("snapshot", self._snapshot.state())
        values = {
            "map": map_values,
            "version": self._snapshot.version,
            "exposure": list(self._exposure),
            "last_tracked": self._last_tracked,
            "keyframe_at": self._keyframe_at,
            "pending_ms": pending_ms,
        }
        return SlamState(arrays, values)

    def restore(self, state: SlamState, read_frame: Callable[[int], Frame]) -> None:
        """Take over what ``state`` returned; ``read_frame`` reads the frame of an index again.

        Raises CheckpointError where a keyframe's images are not those of before.
        """
        values = state.values
        self._mapper.restore(of_prefix("map", state.arrays), values["map"], read_frame)
        self._frames.restore(of_prefix("frames", state.arrays))
        self._snapshot.restore(of_prefix("snapshot", state.arrays), values["version"])
        self._exposure = (values["exposure"][0], values["exposure"][1])
        self._last_tracked, self._keyframe_at = values["last_tracked"], values["keyframe_at"]
        if values["pending_ms"] is not None:
            self._mapping.resume(values["pending_ms"])
        self._localizer.restore(of_prefix("localizer", state.arrays))
        self._mapping_memory = self._mapper.memory()

    def _take_mapping_if_due(self) -> None:
        """Let tracking see the newest keyframe's map once it is due, or, in real time, there."""
        if not self._mapping.busy:
            return
        due = len(self._frames) - self._keyframe_at >= self._config.mapping.publish_after
        # Nothing can be tracked before there is a first map.
        if self._snapshot.version == 0 or (self._mapping.ready if self._realtime else due):
            self._take_mapping()

    def _take_mapping(self) -> None:
        """Wait for the keyframe that is being mapped, and let tracking see what came of it."""
        started = time.perf_counter()
        with self._trace.span("waiting for mapping", len(self._frames)):
            self._mapping.wait()
        self._waiting_ms += 1000 * (time.perf_counter() - started)
        try:
            self._mapping_ms += self._mapping.take()
        except Exception:
            # What it left may be half of a change.
            self._mapper.map.reset(self._snapshot.live, self._snapshot.queries)
            raise
        self._snapshot.renew(self._mapper.map)
        self._mapping_memory = self._mapper.memory()
        self._frames.refine([keyframe.T_camera_world for keyframe in self._mapper.keyframes])

    def _find_pose(
        self, frame: Frame, pyramid: list[ImageLevel]
    ) -> tuple[PoseEstimate | None, str]:
        """Return the frame's pose and why it cannot be trusted, if so.

        The first frame has none: it defines the world.
        """
        if not len(self._frames):
            depth, limit = pyramid[0].depth, self._config.densify.max_depth
            if not ((depth > 0) & (depth < limit)).any():
                raise TrackingError(
                    f"frame {frame.index} has no depth under {limit:g} m to start a map from"
                )
            return None, ""
        return self._localizer.find(
            *(pyramid, self._snapshot, self._frames, self._exposure), moving=self._last_tracked
        )

    def _settle(self, estimate: PoseEstimate | None, reason: str) -> Array:
        """Return the frame's T_camera_world; a lost frame stays where the one before was."""
        if estimate is None:
            return np.eye(4)
        if reason:
            return self._frames.pose(-1)
        self._exposure = (estimate.gain, estimate.bias)
        return estimate.T_camera_world

    def _wants_keyframe(self, index: int, level: ImageLevel, estimate: PoseEstimate | None) -> bool:
        if estimate is None:
            return True
        config = self._config.keyframes
        waiting = self._realtime and self._mapping.busy and not self._mapping.ready
        if waiting or is_heldout(index, config.heldout_every):
            return False
        T_last_camera = self._frames.keyframe_poses[-1] @ geometry.inverse(estimate.T_camera_world)
        since = len(self._frames) - self._keyframe_at
        return keyframe_is_due(since, T_last_camera, estimate.valid_share, level.depth, config)

    def _make_keyframe(self, index: int, level: ImageLevel, T_camera_world: Array) -> Array:
        """Hand the loaded frame to mapping; return its pose, moved along with the keyframes."""
        if self._mapping.busy:
            relative = T_camera_world @ geometry.inverse(self._frames.keyframe_poses[-1])
            self._take_mapping()
            T_camera_world = relative @ self._frames.keyframe_poses[-1]
        exposure = self._exposure if self._config.mapping.exposure_rate > 0 else (1.0, 0.0)
        images = self._buffers.copy_images()
        keyframe = Keyframe(index, T_camera_world, *exposure, *images)
        self._mapping_memory += MemoryUse(keyframes=tensor_bytes(*images))
        self._mapping.submit(keyframe, map_version=self._snapshot.version + 1)
        self._keyframe_at = len(self._frames)
        self._frames.add_keyframe(T_camera_world)
        self._localizer.add_keyframe(level.rgb)
        return T_camera_world
