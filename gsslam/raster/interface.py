"""``rasterize``: spheres, a camera and a pose to images, differentiable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from gsslam.camera import Camera
from gsslam.errors import ConfigError
from gsslam.raster.constants import DEFAULT_LOW_PASS, PLANE_DEPTH, PLANE_FEATURE, PLANE_SILHOUETTE
from gsslam.raster.gsplat import rasterize_gsplat
from gsslam.raster.native import rasterize_native
from gsslam.raster.reference import rasterize_reference

Backend = Literal["native", "reference", "gsplat"]


@dataclass(frozen=True)
class Spheres:
    """Isotropic Gaussian spheres in world coordinates."""

    # (N, 3) metres.
    xyz: torch.Tensor
    # (N,) natural logarithm of the standard deviation in metres.
    log_radius: torch.Tensor
    # (N,) opacity = sigmoid(opacity_logit).
    opacity_logit: torch.Tensor
    # (N, 3) colour, 0 to 1.
    rgb: torch.Tensor
    # (N, D) channels that are rendered like colour, or None.
    feature: torch.Tensor | None = None

    def matrix(self) -> torch.Tensor:
        """Return the (8 + D, N) parameter matrix that the kernels read, differentiably."""
        n = self.xyz.shape[0]
        expected = {"xyz": (n, 3), "log_radius": (n,), "opacity_logit": (n,), "rgb": (n, 3)}
        for name, shape in expected.items():
            actual = tuple(getattr(self, name).shape)
            if actual != shape:
                raise ConfigError(f"spheres.{name} must have shape {shape}, not {actual}")
        if self.feature is not None and (self.feature.ndim != 2 or len(self.feature) != n):
            raise ConfigError(f"spheres.feature must have shape ({n}, D)")
        rows = [self.xyz.T, self.log_radius[None], self.opacity_logit[None], self.rgb.T]
        if self.feature is not None:
            rows.append(self.feature.T)
        return torch.cat(rows)


@dataclass(frozen=True)
class Rendering:
    """Images of the spheres."""

    # (H, W, 3): blended colour on black.
    colour: torch.Tensor
    # (H, W) metres: expected depth, the mean of the spheres' depths by blending weight; 0 where
    # nothing is seen.
    depth: torch.Tensor
    # (H, W): sum of the blending weights, 0 to 1.
    silhouette: torch.Tensor
    # (H, W, D) or None.
    feature: torch.Tensor | None

    @staticmethod
    def from_planes(planes: torch.Tensor) -> Rendering:
        """Make it from the (5 + D, H, W) planes of a rasteriser."""
        silhouette = planes[PLANE_SILHOUETTE]
        seen = silhouette > 0
        depth = torch.where(seen, planes[PLANE_DEPTH] / silhouette.where(seen, 1.0), 0.0)
        feature = planes[PLANE_FEATURE:].permute(1, 2, 0) if len(planes) > PLANE_FEATURE else None
        return Rendering(planes[:3].permute(1, 2, 0), depth, silhouette, feature)


def rasterize(
    spheres: Spheres,
    camera: Camera,
    T_camera_world: torch.Tensor,
    *,
    low_pass: float = DEFAULT_LOW_PASS,
    backend: Backend = "native",
) -> Rendering:
    """Render spheres, differentiably with respect to them and to the pose.

    Args:
        spheres: N spheres; float32 on the CPU or on a GPU for the native backend.
        camera: where pixel centres lie at integer + 0.5.
        T_camera_world: (4, 4) world points to camera points; x right, y down, z forward.
        low_pass: pixels^2 added to every projected variance; the opacity is scaled down to keep
            the sphere's total weight.
        backend: ``native`` kernels, the float64 ``reference`` that defines them, or the ``gsplat``
            package to compare with.

    Blending follows Kerbl et al., 3D Gaussian Splatting (2023), equations 2 and 3, with the scalar
    covariance of ``docs/conventions.md``. Raises ConfigError for shapes that do not fit and
    NativeError for tensors that the kernels cannot read.
    """
    if tuple(T_camera_world.shape) != (4, 4):
        raise ConfigError(f"T_camera_world must be (4, 4), not {tuple(T_camera_world.shape)}")
    if backend == "native":
        planes = rasterize_native(spheres.matrix(), T_camera_world, camera, low_pass)
    elif backend == "reference":
        planes = rasterize_reference(spheres.matrix(), T_camera_world, camera, low_pass)
    elif backend == "gsplat":
        pose = T_camera_world[None].float()
        planes = rasterize_gsplat(spheres.matrix(), pose, camera, low_pass)[0]
    else:
        raise ConfigError(f"backend {backend!r} is unknown; choose native, reference or gsplat")
    return Rendering.from_planes(planes)
