"""A query for every sphere of a map, learned from an encoder's features of its views."""

from __future__ import annotations

import torch
from torch.nn.functional import interpolate, normalize

from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.features.head import FeatureHead, distillation_loss
from gsslam.raster import constants as c
from gsslam.raster.constants import DEFAULT_LOW_PASS
from gsslam.raster.native import rasterize_native

# Pixels that the map hardly covers say nothing about its spheres.
_LEAST_SILHOUETTE = 0.5


class FeatureField:
    """Queries (D, N) of fixed spheres, and the head that decodes them.

    A view's loss is the distillation loss of the decoded queries, blended like colour, against the
    features of its image. Spheres and poses stay as they are. On the CPU.
    """

    def __init__(
        self,
        spheres: torch.Tensor,
        camera: Camera,
        head: FeatureHead,
        *,
        step: int = 4,
        query_rate: float = 0.2,
        head_rate: float = 1e-3,
    ) -> None:
        """``spheres`` (8, N); views have one pixel for every ``step`` of ``camera``'s in a row."""
        self.camera = camera.resized(-(-camera.width // step), -(-camera.height // step))
        self.head = head
        self.spheres = spheres.detach()[: c.ROW_FEATURE].contiguous()
        self.queries = torch.zeros(head.dim, spheres.shape[1], requires_grad=True)
        self._optimizer = torch.optim.Adam(
            [
                {"params": [self.queries], "lr": query_rate},
                {"params": list(head.parameters()), "lr": head_rate},
            ]
        )

    def render(self, T_camera_world: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return blended queries (D, h, w) and the silhouette (h, w), differentiably."""
        parameters = torch.cat([self.spheres, self.queries])
        planes = rasterize_native(parameters, T_camera_world, self.camera, DEFAULT_LOW_PASS)
        silhouette = planes[c.PLANE_SILHOUETTE].detach()
        return planes[c.PLANE_FEATURE :] / silhouette.clamp(min=1e-3), silhouette

    def begin(self, T_camera_world: torch.Tensor, features: torch.Tensor) -> None:
        """Give spheres that have no query yet that of the feature (C, h', w') where they appear."""
        R, t = T_camera_world[:3, :3].float(), T_camera_world[:3, 3].float()
        x, y, z = R @ self.spheres[c.ROW_XYZ] + t[:, None]
        column = x / z * self.camera.fx + self.camera.cx
        row = y / z * self.camera.fy + self.camera.cy
        inside = (z > c.NEAR_PLANE) & (column >= 0) & (column < self.camera.width)
        inside &= (row >= 0) & (row < self.camera.height)
        with torch.no_grad():
            new = (inside & (self.queries == 0).all(0)).nonzero()[:, 0]
            target = self._target(features)
            self.queries[:, new] = self.head.encode(target[row[new].long(), column[new].long()]).mT

    def learn(self, T_camera_world: torch.Tensor, features: torch.Tensor) -> float:
        """Take one step of Adam on a view and the features (C, h', w') of its image."""
        queries, silhouette = self.render(T_camera_world)
        decoded = self.head(queries.permute(1, 2, 0))
        covered = (silhouette > _LEAST_SILHOUETTE).float()
        loss = distillation_loss(decoded, self._target(features), covered)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return float(loss.detach())

    def decode(self, T_camera_world: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features (C, h, w) of a view, and the silhouette (h, w)."""
        with torch.no_grad():
            queries, silhouette = self.render(T_camera_world)
            return self.head.decode_planes(queries), silhouette

    def target(self, features: torch.Tensor) -> torch.Tensor:
        """Return an encoder's features (C, h', w') at the views' size (C, h, w)."""
        return self._target(features).permute(2, 0, 1)

    def _target(self, features: torch.Tensor) -> torch.Tensor:
        if features.dim() != 3 or features.shape[0] != self.head.channels:
            raise NativeError(
                f"features must be ({self.head.channels}, h, w), not {tuple(features.shape)}"
            )
        size = (self.camera.height, self.camera.width)
        resized = interpolate(features[None], size, mode="bilinear", align_corners=False)
        return resized[0].permute(1, 2, 0)


def heat_map(features: torch.Tensor, feature: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Return how alike features (C, H, W) are to one (C), −1 to 1, relative to a mean (C)."""
    here = normalize(features - mean[:, None, None], dim=0)
    return torch.einsum("chw,c->hw", here, normalize(feature - mean, dim=0))
