"""A plan: the native rasteriser with its buffers, for loops that must not allocate."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsslam import _native
from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.native import Plan, native_structure
from gsslam.raster import constants as c


def native_view(
    camera: Camera, T_camera_world: NDArray[np.float64], low_pass: float
) -> _native.View:
    """Return the native description of a camera at a pose."""
    T = np.asarray(T_camera_world, dtype=np.float64)
    if T.shape != (4, 4):
        raise NativeError(f"T_camera_world must be a (4, 4) matrix; got {T.shape}")
    view: _native.View = native_structure(
        "View",
        width=camera.width,
        height=camera.height,
        intrinsics=[camera.fx, camera.fy, camera.cx, camera.cy],
        low_pass=low_pass,
        T_camera_world=T[:3].ravel().tolist(),
    )
    return view


class RasterPlan:
    """Projects once, then renders and differentiates what was projected.

    Not to be used by two threads at a time.
    """

    def __init__(self, num_features: int = 0, device: torch.device | str = "cpu") -> None:
        self._plan = Plan("Rasterizer", device, num_features=num_features)
        self._plan.sizes["rows"] = c.ROW_FEATURE + num_features
        self._plan.sizes["planes"] = c.PLANE_FEATURE + num_features
        self._spheres: tuple[torch.Tensor, int] | None = None

    @property
    def native(self) -> Any:
        """The native object, for other operations on what was projected."""
        return self._plan.native

    def project(
        self,
        parameters: torch.Tensor,
        count: int,
        camera: Camera,
        T_camera_world: NDArray[np.float64],
        low_pass: float = c.DEFAULT_LOW_PASS,
        *,
        wait: bool = True,
        list_margin: float = 0.0,
    ) -> int:
        """Project, sort and bin the first ``count`` of (8 + D, capacity) spheres.

        Returns how many are visible. With a ``list_margin`` in pixels, on the CPU only, ``refresh``
        may follow. With ``wait`` false a GPU's work is only queued and -1 comes
        back; should the spheres need more room than those before, nothing is drawn.
        """
        view = native_view(camera, T_camera_world, low_pass)
        queues = not wait and self._plan.device.type == "cuda"
        name = "queue_project" if queues else "project"
        margin = {"list_margin": list_margin} if self._plan.device.type == "cpu" else {}
        visible = self._plan.call(name, parameters=parameters, count=count, view=view, **margin)
        self._plan.sizes["height"], self._plan.sizes["width"] = camera.height, camera.width
        self._camera, self._spheres = camera, (parameters, count)
        return -1 if queues else int(visible)

    def refresh(
        self,
        camera: Camera,
        T_camera_world: NDArray[np.float64],
        low_pass: float = c.DEFAULT_LOW_PASS,
    ) -> bool:
        """Project the same spheres, unchanged since, from a pose nearby; their order is kept.

        Returns False, and ``project`` must follow, where the image has moved by more than the
        ``list_margin`` of ``project``, or where the camera is another one.
        """
        if self._spheres is None or camera != self._camera:
            return False
        return bool(self._plan.call("refresh", view=native_view(camera, T_camera_world, low_pass)))

    def forward(self, image: torch.Tensor) -> None:
        """Write the (5 + D, H, W) planes of what was projected into ``image``."""
        self._require_projection()
        self._plan.call("forward", image=image)

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
        if self._spheres is None or (error is None) != (statistics is None):
            raise NativeError("backward needs project before it, and error and statistics together")
        parameters, count = self._spheres
        grad_pose = self._plan.call(
            "backward",
            parameters=parameters,
            count=count,
            image=image,
            grad_image=grad_image,
            error=error,
            grad_parameters=grad_parameters,
            statistics=statistics,
            decay=decay,
        )
        return np.asarray(grad_pose).reshape(3, 4)

    def bytes(self) -> int:
        """Return how much memory the buffers take."""
        return self._plan.bytes()

    def forget(self) -> None:
        """Drop the spheres that were projected; the buffers stay for the next ones."""
        self._spheres = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (5 + D, H, W) of the images of what was projected."""
        self._require_projection()
        sizes = self._plan.sizes
        return sizes["planes"], sizes["height"], sizes["width"]

    def _require_projection(self) -> None:
        if "height" not in self._plan.sizes:
            raise NativeError("project must be called first")
