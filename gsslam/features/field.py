"""A query for every sphere of a map, learned from an encoder's features of its views."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate, normalize

from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.features.head import FeatureHead, distillation_loss
from gsslam.gaussian_map import GaussianMap
from gsslam.memory import MemoryUse, tensor_bytes
from gsslam.optimizer import SphereAdam
from gsslam.raster import constants as c
from gsslam.raster.plan import RasterPlan

# Pixels that the map hardly covers say nothing about its spheres.
LEAST_SILHOUETTE = 0.5

# A sphere further behind what a view shows than this share of the depth is hidden.
_BEHIND = 0.05

Pose = NDArray[np.float64]


class FeatureField:
    """The queries (D, N) of a map's spheres, and the head that decodes them.

    A view's loss is the distillation loss of the decoded queries, blended like colour, against the
    features of its image. Spheres and poses stay as they are. Views have one pixel for every
    ``stride`` of the camera's in a row. Not to be used by two threads at a time.
    """

    def __init__(
        self,
        gaussian_map: GaussianMap,
        camera: Camera,
        head: FeatureHead,
        *,
        stride: int = 4,
        query_rate: float = 0.1,
        head_rate: float = 1e-2,
        low_pass: float = c.DEFAULT_LOW_PASS,
    ) -> None:
        """Raise NativeError unless the map has queries of as many channels as the head."""
        if gaussian_map.queries.shape[0] != head.dim:
            raise NativeError(
                f"the map has queries of {gaussian_map.queries.shape[0]} channels,"
                f" the head takes {head.dim}"
            )
        device = gaussian_map.parameters.device
        self.map, self.head = gaussian_map, head.to(device)
        self.camera = camera.resized(-(-camera.width // stride), -(-camera.height // stride))
        self._low_pass = low_pass
        self._plan = RasterPlan(head.dim, device)
        self._adam = SphereAdam(device=device)
        self._rates = torch.full((head.dim,), query_rate, device=device)
        self._head_rate = head_rate
        self.head_optimizer = torch.optim.Adam(head.parameters(), lr=head_rate)

    def render(
        self, T_camera_world: Pose, camera: Camera | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return blended queries (D, h, w) and the silhouette (h, w)."""
        planes = self._render(T_camera_world, camera or self.camera)
        silhouette = planes[c.PLANE_SILHOUETTE]
        return planes[c.PLANE_FEATURE :] / silhouette.clamp(min=1e-3), silhouette

    def begin(self, T_camera_world: Pose, features: torch.Tensor) -> None:
        """Give spheres in view the query of the feature (C, h', w') where they appear.

        A sphere's is the mean over the views that see it, of which this is one more.
        """
        spheres = self.map.live
        planes = self._render(T_camera_world, self.camera)
        T = torch.from_numpy(T_camera_world).to(spheres)
        x, y, z = T[:3, :3] @ spheres[c.ROW_XYZ] + T[:3, 3:]
        column = x / z * self.camera.fx + self.camera.cx
        row = y / z * self.camera.fy + self.camera.cy
        seen = (z > c.NEAR_PLANE) & (column >= 0) & (column < self.camera.width)
        seen &= (row >= 0) & (row < self.camera.height)
        new = seen.nonzero()[:, 0]
        place = row[new].long(), column[new].long()
        depth = (planes[c.PLANE_DEPTH] / planes[c.PLANE_SILHOUETTE].clamp(min=1e-3))[place]
        hidden = z[new] > (1 + _BEHIND) * depth
        new, place = new[~hidden], (place[0][~hidden], place[1][~hidden])
        self.map.query_views[new] += 1
        with torch.no_grad():
            queries = self.head.encode(self._target(features, self.camera)[place]).mT
            old = self.map.queries[:, new]
            self.map.queries[:, new] = old + (queries - old) / self.map.query_views[new]

    def learn(
        self,
        T_camera_world: Pose,
        features: torch.Tensor,
        examples: torch.Tensor | None = None,
        rate: float = 1.0,
    ) -> float:
        """Take one step of Adam on a view and the features (C, h', w') of its image.

        The head also learns to decode the encodings of ``examples`` (n, C): so new spheres begin
        with queries that it knows. ``rate`` is the share of the learning rates that is taken.
        Returns the view's loss before the step.
        """
        self.head_optimizer.zero_grad()
        loss = self.gradient(T_camera_world, features)
        if examples is not None:
            examples = examples.to(self.map.parameters.device).float()
            decoded = self.head(self.head.encode(examples))
            distillation_loss(decoded, examples).backward()  # type: ignore[no-untyped-call]
        spheres = self.map
        self._adam.step(
            *(spheres.queries, spheres.query_gradient, spheres.query_adam),
            *(rate * self._rates, spheres.count),
        )
        self.head_optimizer.param_groups[0]["lr"] = rate * self._head_rate
        self.head_optimizer.step()
        return loss

    def gradient(self, T_camera_world: Pose, features: torch.Tensor) -> float:
        """Add the gradient of a view's loss to that of the queries and of the head.

        Returns the loss.
        """
        planes = self._render(T_camera_world, self.camera)
        silhouette = planes[c.PLANE_SILHOUETTE]
        covered = silhouette > LEAST_SILHOUETTE
        if not covered.any():
            return 0.0
        weights = silhouette[covered][:, None]  # (n, 1)
        queries = (planes[c.PLANE_FEATURE :, covered].mT / weights).requires_grad_()  # (n, D)
        loss = distillation_loss(self.head(queries), self._target(features, self.camera)[covered])
        loss.backward()  # type: ignore[no-untyped-call]
        assert queries.grad is not None
        grad_planes = torch.zeros_like(planes)
        grad_planes[c.PLANE_FEATURE :, covered] = (queries.grad / weights).mT
        self._plan.backward(planes, grad_planes, self.map.gradient_with_queries)
        # Geometry and colour are none of the features' business.
        self.map.gradient[:, : self.map.count] = 0
        return float(loss.detach())

    def decode(
        self, T_camera_world: Pose, camera: Camera | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features (C, h, w) of a view, and the silhouette (h, w)."""
        with torch.no_grad():
            queries, silhouette = self.render(T_camera_world, camera)
            return self.head.decode_planes(queries), silhouette

    def target(self, features: torch.Tensor, camera: Camera | None = None) -> torch.Tensor:
        """Return an encoder's features (C, h', w') at the views' size (C, h, w)."""
        return self._target(features, camera or self.camera).permute(2, 0, 1)

    def memory(self) -> MemoryUse:
        """Return what lists, head and its optimiser take; the queries are the map's."""
        head = tensor_bytes(*self.head.parameters(), *self.head.buffers())
        return MemoryUse(moments=3 * head, lists=self._plan.bytes(), buffers=head)

    def drop_lists(self) -> None:
        """Give the memory of the lists back; the next view makes new ones."""
        self._plan = RasterPlan(self.head.dim, self.map.parameters.device)

    def _render(self, T_camera_world: Pose, camera: Camera) -> torch.Tensor:
        rows = self.map.with_queries
        self._plan.project(rows, self.map.count, camera, T_camera_world, self._low_pass)
        planes = torch.empty(self._plan.image_shape, device=rows.device)
        self._plan.forward(planes)
        return planes

    def _target(self, features: torch.Tensor, camera: Camera) -> torch.Tensor:
        if features.dim() != 3 or features.shape[0] != self.head.channels:
            raise NativeError(
                f"features must be ({self.head.channels}, h, w), not {tuple(features.shape)}"
            )
        size = (camera.height, camera.width)
        features = features.to(self.map.parameters.device).float()
        resized = interpolate(features[None], size, mode="bilinear", align_corners=False)
        return resized[0].permute(1, 2, 0)


def heat_map(features: torch.Tensor, feature: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Return how alike features (C, H, W) are to one (C), −1 to 1, relative to a mean (C)."""
    here = normalize(features - mean[:, None, None], dim=0)
    return torch.einsum("chw,c->hw", here, normalize(feature - mean, dim=0))
