"""A plan: the native rasteriser with its buffers, for loops that must not allocate."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import _native
from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.native import Kernels
from gsslam.raster import constants as c


def native_view(
    camera: Camera, T_camera_world: NDArray[np.float64], low_pass: float
) -> _native.View:
    """Return the native description of a camera at a pose."""
    T = np.asarray(T_camera_world, dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise NativeError("T_camera_world must be a finite (4, 4) matrix")
    intrinsics = [camera.fx, camera.fy, camera.cx, camera.cy]
    return _native.View(camera.width, camera.height, intrinsics, low_pass, T[:3].ravel().tolist())


class RasterPlan:
    """Projects once, then renders and differentiates what was projected.

    Not to be used by two threads at a time.
    """

    def __init__(self, num_features: int = 0, device: torch.device | str = "cpu") -> None:
        if not 0 <= num_features <= c.MAX_FEATURES:
            raise NativeError(f"num_features {num_features} must be from 0 to {c.MAX_FEATURES}")
        self._num_features = num_features
        self._kernels = Kernels.on(device)
        self._native = self._kernels.make("Rasterizer", num_features)
        self._camera: Camera | None = None
        self._spheres: tuple[torch.Tensor, int] | None = None

    @property
    def native(self) -> Any:
        """The native object, for other operations on what was projected."""
        return self._native

    def project(
        self,
        parameters: torch.Tensor,
        count: int,
        camera: Camera,
        T_camera_world: NDArray[np.float64],
        low_pass: float = c.DEFAULT_LOW_PASS,
        *,
        wait: bool = True,
    ) -> int:
        """Project, sort and bin the first ``count`` of (8 + D, capacity) spheres.

        Returns how many are visible. With ``wait`` false a GPU's work is only queued and -1 comes
        back; should the spheres need more room than those before, nothing is drawn.
        """
        capacity = parameters.shape[-1]
        if not 0 <= count <= capacity:
            raise NativeError(f"count {count} must be from 0 to the capacity {capacity}")
        shape = (c.ROW_FEATURE + self._num_features, capacity)
        data = self._kernels.address(parameters, "parameters", shape)
        view = native_view(camera, T_camera_world, low_pass)
        self._camera, self._spheres = camera, (parameters, count)
        arguments = (data, capacity, count, view, *self._kernels.stream())
        if not wait and self._kernels.device.type == "cuda":
            self._native.queue_project(*arguments)
            return -1
        visible: int = self._native.project(*arguments)
        return visible

    def forward(self, image: torch.Tensor) -> None:
        """Write the (5 + D, H, W) planes of what was projected into ``image``."""
        address = self._kernels.address(image, "image", self.image_shape)
        self._native.forward(address, *self._kernels.stream())

    def backward(
        self,
        image: torch.Tensor,
        grad_image: torch.Tensor,
        grad_parameters: torch.Tensor,
        error: torch.Tensor | None = None,
        statistics: torch.Tensor | None = None,
        decay: float = 1.0,
    ) -> NDArray[np.float64]:
        """Add the gradient of the spheres to ``grad_parameters`` (8 + D, capacity).

        ``image`` is what forward wrote. With ``error`` (H, W) the spheres' statistics are added to
        ``statistics`` (4, capacity), as ``keep_statistics`` in the reference says. Returns (3, 4):
        the gradient of the pose's upper rows.
        """
        shape = self.image_shape
        if self._spheres is None or (error is None) != (statistics is None):
            raise NativeError("backward needs project before it, and error and statistics together")
        parameters, count = self._spheres
        address = self._kernels.address
        capacity = parameters.shape[1]
        grad_pose = self._native.backward(
            parameters.data_ptr(),
            capacity,
            count,
            address(image, "image", shape),
            address(grad_image, "grad_image", shape),
            0 if error is None else address(error, "error", shape[1:]),
            address(grad_parameters, "grad_parameters", tuple(parameters.shape)),
            0
            if statistics is None
            else address(statistics, "statistics", (c.STATISTICS, capacity)),
            decay,
            *self._kernels.stream(),
        )
        return np.asarray(grad_pose).reshape(3, 4)

    def bytes(self) -> int:
        """Return how much memory the buffers take."""
        held: int = self._native.bytes()
        return held

    def forget(self) -> None:
        """Drop the spheres that were projected; the buffers stay for the next ones."""
        self._spheres = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (5 + D, H, W) of the images of what was projected."""
        if self._camera is None:
            raise NativeError("project must be called first")
        planes = c.PLANE_FEATURE + self._num_features
        return planes, self._camera.height, self._camera.width
