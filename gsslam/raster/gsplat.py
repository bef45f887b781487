"""Spheres and ellipsoids through the gsplat package: to compare with, on CUDA only.

gsplat projects by the affine approximation of Zwicker et al. (2002), so that spheres become
ellipses here; its images agree with ours to 38 dB and more.
"""

from __future__ import annotations

import torch

from gsslam.camera import Camera
from gsslam.errors import ConfigError
from gsslam.raster import constants as c

# Rows of an ellipsoid behind a sphere's: the logarithms of the second and third axis (the first is
# ROW_LOG_RADIUS) and the rotation as a quaternion (w, x, y, z).
ROW_OTHER_AXES = slice(8, 10)
ROW_QUATERNION = slice(10, 14)
ELLIPSOID_ROWS = 14


def rasterize_gsplat(
    parameters: torch.Tensor, T_camera_world: torch.Tensor, camera: Camera, low_pass: float
) -> torch.Tensor:
    """Return (V, 5, H, W) planes of (8, N) spheres or (14, N) ellipsoids, differentiably.

    ``T_camera_world`` (V, 4, 4) float32 are the views. Raises ConfigError where gsplat is not
    installed or the tensors are not on a GPU.
    """
    try:
        from gsplat import rasterization
    except ImportError as error:
        raise ConfigError("backend gsplat needs its package: pip install gsplat==1.5.3") from error
    if parameters.device.type != "cuda":
        raise ConfigError("backend gsplat runs on CUDA only; use native or reference")
    log_axes = parameters[c.ROW_LOG_RADIUS].expand(3, -1)  # (3, N)
    quaternion = parameters.new_tensor([1.0, 0, 0, 0])[:, None].expand(4, parameters.shape[1])
    if parameters.shape[0] == ELLIPSOID_ROWS:
        log_axes = torch.cat([parameters[c.ROW_LOG_RADIUS][None], parameters[ROW_OTHER_AXES]])
        quaternion = parameters[ROW_QUATERNION]
    K = torch.tensor(camera.matrix(), dtype=torch.float32, device=parameters.device)
    image, alpha, _ = rasterization(
        parameters[c.ROW_XYZ].T.contiguous(),
        quaternion.T.contiguous(),
        log_axes.exp().T.contiguous(),
        parameters[c.ROW_OPACITY_LOGIT].sigmoid(),
        parameters[c.ROW_RGB].T.contiguous(),
        T_camera_world,
        K.expand(len(T_camera_world), 3, 3),
        camera.width,
        camera.height,
        near_plane=c.NEAR_PLANE,
        eps2d=low_pass,
        packed=False,
        render_mode="RGB+D",
        rasterize_mode="antialiased",
    )
    return torch.cat([image, alpha], dim=3).permute(0, 3, 1, 2).contiguous()
