"""A Slam that is told the answer: true poses, a map of back-projected points drawn as squares.

It keeps to the interface of ``gsslam.slam.Slam``, so that the run, the run folder and the command
line are tested apart from tracking and mapping, at known quality.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.errors import TrackingError
from gsslam.frame import Frame
from gsslam.geometry import inverse
from gsslam.keyframes import is_heldout
from gsslam.results import RenderedView, SphereState, TrackingResult
from gsslam.slam_state import SlamState
from gsslam.trajectory import Trajectory


class OracleMap:
    def __init__(self) -> None:
        self.xyz = np.zeros((0, 3), np.float32)
        self.rgb = np.zeros((0, 3), np.float32)

    @property
    def count(self) -> int:
        return len(self.xyz)

    def state(self) -> SphereState:
        n = self.count
        radius, logit = np.full(n, np.log(0.01)), np.full(n, 4.0)
        return SphereState(self.xyz, radius.astype(np.float32), logit.astype(np.float32), self.rgb)

    def load(self, state: SphereState) -> None:
        self.xyz, self.rgb = state.xyz, state.rgb

    def insert(self, frame: Frame, T_world_camera: np.ndarray) -> None:
        v, u = np.nonzero(frame.depth)
        z = frame.depth[v, u]
        c = frame.camera
        points = np.stack([(u + 0.5 - c.cx) / c.fx * z, (v + 0.5 - c.cy) / c.fy * z, z], axis=1)
        points = points @ T_world_camera[:3, :3].T + T_world_camera[:3, 3]
        self.xyz = np.concatenate([self.xyz, points.astype(np.float32)])
        self.rgb = np.concatenate([self.rgb, frame.rgb[v, u].astype(np.float32) / 255])


class OracleSlam:
    """Lost at frames ``lost``; gives up at ``fails_at``; drifts ``drift`` metres a frame in x."""

    lost: frozenset[int] = frozenset()
    fails_at: int | None = None
    failure: type[Exception] = TrackingError
    drift: float = 0.0

    def __init__(
        self, config: SlamConfig, camera: Camera, device: str = "cpu", **options: object
    ) -> None:
        self._config, self._camera = config, camera
        self._timestamps: list[float] = []
        self._poses: list[np.ndarray] = []
        self.map = OracleMap()

    def __enter__(self) -> OracleSlam:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def track(self, frame: Frame) -> TrackingResult:
        if frame.index == self.fails_at:
            raise self.failure("the oracle has nothing more to say")
        pose = np.eye(4) if frame.T_world_camera is None else frame.T_world_camera.copy()
        pose[0, 3] += self.drift * frame.index
        config = self._config.keyframes
        heldout = is_heldout(frame.index, config.heldout_every)
        is_keyframe = frame.index % config.max_interval == 0 and not heldout
        if is_keyframe:
            self.map.insert(frame, pose)
        self._timestamps.append(frame.timestamp)
        self._poses.append(pose)
        return TrackingResult(
            index=frame.index,
            timestamp=frame.timestamp,
            T_world_camera=pose,
            tracked=frame.index not in self.lost,
            is_keyframe=is_keyframe,
            reason="the oracle looked away" if frame.index in self.lost else "",
            converged=True,
            iterations=3,
            valid_share=0.9,
            colour_residual=0.01,
            depth_residual=0.001,
            conditioning=0.1,
            gain=1.0,
            bias=0.0,
            spheres=self.map.count,
            map_version=len(self._poses),
            tracking_ms=2.0,
            mapping_ms=4.0 if is_keyframe else 0.0,
            waiting_ms=0.0,
            memory_mb=10.0 + frame.index,
        )

    def state(self) -> SlamState:
        arrays = {"xyz": self.map.xyz, "rgb": self.map.rgb, "poses": np.array(self._poses)}
        return SlamState(arrays, {"timestamps": self._timestamps})

    def restore(self, state: SlamState, read_frame: Callable[[int], Frame]) -> None:
        self.map.xyz, self.map.rgb = state.arrays["xyz"], state.arrays["rgb"]
        self._poses = list(state.arrays["poses"])
        self._timestamps = list(state.values["timestamps"])

    def finish(self) -> Trajectory:
        poses = np.array(self._poses, dtype=np.float64).reshape(-1, 4, 4)
        return Trajectory(np.array(self._timestamps, dtype=np.float64), poses)

    def render(self, T_world_camera: np.ndarray, camera: Camera | None = None) -> RenderedView:
        c = camera or self._camera
        T = inverse(T_world_camera)
        points = self.map.xyz @ T[:3, :3].T + T[:3, 3]
        seen = points[:, 2] > 0.05
        points, rgb = points[seen], self.map.rgb[seen]
        far_first = np.argsort(-points[:, 2], kind="stable")
        x, y, z = points[far_first].T
        u = np.floor(c.fx * x / z + c.cx).astype(int)
        v = np.floor(c.fy * y / z + c.cy).astype(int)
        colour = np.zeros((c.height, c.width, 3), np.float32)
        depth = np.zeros((c.height, c.width), np.float32)
        # The pixel itself last, so that it wins over its neighbours' squares.
        for du, dv in ((1, 1), (-1, -1), (1, -1), (-1, 1), (1, 0), (-1, 0), (0, 1), (0, 0)):
            inside = (u + du >= 0) & (u + du < c.width) & (v + dv >= 0) & (v + dv < c.height)
            at = (v[inside] + dv, u[inside] + du)
            colour[at], depth[at] = rgb[far_first][inside], z[inside]
        return RenderedView(colour, depth, (depth > 0).astype(np.float32))
