"""RGB-D SLAM: frames in, poses and a map of spheres out."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import geometry
from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.device import resolve_device
from gsslam.errors import TrackingError
from gsslam.frame import Frame
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe, is_heldout, keyframe_is_due
from gsslam.mapping import Mapper
from gsslam.memory import MEGABYTE, RECORD_BYTES, MemoryUse, working_bytes
from gsslam.pyramid import ImageLevel, build_pyramid
from gsslam.raster.interface import Rendering
from gsslam.raster.plan import RasterPlan
from gsslam.results import RenderedView, TrackingResult
from gsslam.tracking import PoseEstimate, Tracker
from gsslam.trajectory import Trajectory


@dataclass(frozen=True)
class _TrackedFrame:
    """A frame's pose, kept relative to a keyframe so that it follows the keyframe's refinement."""

    timestamp: float
    keyframe: int
    T_camera_keyframe: NDArray[np.float64]


class Slam:
    """Tracks frames one after the other and builds the map as it goes.

    Not to be used by two threads at a time.
    """

    def __init__(self, config: SlamConfig, camera: Camera, device: str = "cpu") -> None:
        """Raise ConfigError for a ``device``, "cpu" or "cuda", that cannot be used."""
        self._device = resolve_device(device)
        self._config = config
        self._camera = camera
        self._tracker = Tracker(config.tracking, config.map.low_pass, self._device)
        self._mapper = Mapper(config, camera, self._device)
        self._frames: list[_TrackedFrame] = []
        self._exposure = (1.0, 0.0)
        self._last_tracked = False
        self._since_keyframe = 0

    @property
    def map(self) -> GaussianMap:
        """The spheres."""
        return self._mapper.map

    @property
    def keyframes(self) -> list[Keyframe]:
        """What the map was built from, oldest first."""
        return self._mapper.keyframes

    def memory(self) -> MemoryUse:
        """Return what the memory budget counts: all that grows with the images and the map."""
        pixels = self._camera.width * self._camera.height
        buffers = working_bytes(pixels) + RECORD_BYTES * len(self._frames)
        return self._mapper.memory() + self._tracker.memory() + MemoryUse(buffers=buffers)

    def track(self, frame: Frame) -> TrackingResult:
        """Find the pose of the next frame, and map it if it is a keyframe.

        Raises TrackingError if the frame's camera is not the one given at the start, or if the
        first frame has no depth to start a map from.
        """
        if frame.camera != self._camera:
            raise TrackingError(f"frame {frame.index} comes from another camera than the first")
        start = time.perf_counter()
        pyramid = build_pyramid(frame, self._config.tracking.levels, self._device)
        estimate = self._estimate(frame, pyramid)
        tracked_at = time.perf_counter()
        reason = estimate.verdict(self._config.tracking) if estimate else ""
        is_keyframe = not reason and self._wants_keyframe(frame.index, pyramid[0], estimate)
        T_camera_world = self._settle(frame, pyramid[0], estimate, reason, is_keyframe)
        mapped_at = time.perf_counter()
        return _result(
            frame,
            estimate,
            geometry.inverse(T_camera_world),
            reason,
            is_keyframe,
            self._exposure,
            (1e3 * (tracked_at - start), 1e3 * (mapped_at - tracked_at)),
            self.memory().total / MEGABYTE,
        )

    def finish(self) -> Trajectory:
        """Settle the map's brightness; return the final poses of all frames, in tracking order.

        Frames may still be tracked afterwards.
        """
        if self.keyframes:
            self._mapper.center_exposure()
            self._exposure = (self.keyframes[-1].gain, self.keyframes[-1].bias)
        poses = [geometry.inverse(self._pose(i)) for i in range(len(self._frames))]
        stamps = np.array([frame.timestamp for frame in self._frames])
        return Trajectory(stamps, np.array(poses).reshape(-1, 4, 4))

    def render(
        self, T_world_camera: NDArray[np.float64], camera: Camera | None = None
    ) -> RenderedView:
        """Return the map seen from a pose, by default with the camera of the sequence."""
        camera = camera or self._camera
        plan = RasterPlan(device=self._device)
        pose = geometry.inverse(T_world_camera)
        plan.project(self.map.parameters, self.map.count, camera, pose, self._config.map.low_pass)
        planes = torch.empty(plan.image_shape, device=self._device)
        plan.forward(planes)
        view = Rendering.from_planes(planes.cpu())
        return RenderedView(
            np.ascontiguousarray(view.colour.numpy()), view.depth.numpy(), view.silhouette.numpy()
        )

    def _pose(self, i: int) -> NDArray[np.float64]:
        """Return T_camera_world of the i-th frame, by its keyframe's newest pose."""
        frame = self._frames[i]
        return frame.T_camera_keyframe @ self.keyframes[frame.keyframe].T_camera_world

    def _predictions(self) -> list[NDArray[np.float64]]:
        """Return guesses of the next T_camera_world: constant velocity, half of it, no motion."""
        last = self._pose(-1)
        if len(self._frames) < 2 or not self._last_tracked:
            return [last]
        velocity = geometry.log_se3(last @ geometry.inverse(self._pose(-2)))
        return [geometry.moved(last, share * velocity) for share in (1.0, 0.5, 0.0)]

    def _estimate(self, frame: Frame, pyramid: list[ImageLevel]) -> PoseEstimate | None:
        """Return the frame's pose, or None for the first frame, which defines the world."""
        if not self._frames:
            depth, limit = pyramid[0].depth, self._config.densify.max_depth
            if not ((depth > 0) & (depth < limit)).any():
                raise TrackingError(
                    f"frame {frame.index} has no depth under {limit:g} m to start a map from"
                )
            return None
        return self._tracker.estimate(
            self.map.parameters, self.map.count, pyramid, self._predictions(), *self._exposure
        )

    def _wants_keyframe(self, index: int, level: ImageLevel, estimate: PoseEstimate | None) -> bool:
        if estimate is None:
            return True
        config = self._config.keyframes
        if is_heldout(index, config.heldout_every):
            return False
        T_last_camera = self.keyframes[-1].T_camera_world @ geometry.inverse(
            estimate.T_camera_world
        )
        measured = level.depth[level.depth > 0]
        return len(measured) > 0 and keyframe_is_due(
            self._since_keyframe + 1,
            T_last_camera,
            estimate.valid_share,
            float(measured.median()),
            config,
        )

    def _settle(
        self,
        frame: Frame,
        level: ImageLevel,
        estimate: PoseEstimate | None,
        reason: str,
        is_keyframe: bool,
    ) -> NDArray[np.float64]:
        """Store the frame, map it if it is a keyframe, and return its T_camera_world."""
        if estimate is None:
            T_camera_world = np.eye(4)
        elif reason:
            T_camera_world = self._pose(-1)
        else:
            T_camera_world = estimate.T_camera_world
            self._exposure = (estimate.gain, estimate.bias)
        if is_keyframe:
            rgb = torch.from_numpy(frame.rgb).to(self._device).permute(2, 0, 1).contiguous()
            refined = self._config.mapping.exposure_rate > 0
            exposure = self._exposure if refined else (1.0, 0.0)
            keyframe = Keyframe(frame.index, T_camera_world, *exposure, rgb, level.depth)
            self._mapper.integrate(keyframe)
            self._since_keyframe = 0
            T_camera_world = keyframe.T_camera_world
        else:
            self._since_keyframe += 1
        self._last_tracked = not reason
        reference = self.keyframes[-1]
        relative = T_camera_world @ geometry.inverse(reference.T_camera_world)
        self._frames.append(_TrackedFrame(frame.timestamp, len(self.keyframes) - 1, relative))
        return T_camera_world


def _result(
    frame: Frame,
    estimate: PoseEstimate | None,
    T_world_camera: NDArray[np.float64],
    reason: str,
    is_keyframe: bool,
    exposure: tuple[float, float],
    times_ms: tuple[float, float],
    memory_mb: float,
) -> TrackingResult:
    """Report a frame; the first one, without an estimate, is right by definition."""
    return TrackingResult(
        index=frame.index,
        timestamp=frame.timestamp,
        T_world_camera=T_world_camera,
        tracked=not reason,
        is_keyframe=is_keyframe,
        reason=reason,
        converged=estimate.converged if estimate else True,
        iterations=estimate.iterations if estimate else 0,
        valid_share=estimate.valid_share if estimate else 1.0,
        colour_residual=estimate.equations.colour_rms if estimate else 0.0,
        depth_residual=estimate.equations.depth_rms if estimate else 0.0,
        conditioning=estimate.conditioning() if estimate else 1.0,
        gain=exposure[0],
        bias=exposure[1],
        tracking_ms=times_ms[0],
        mapping_ms=times_ms[1],
        memory_mb=memory_mb,
    )
