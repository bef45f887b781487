"""A map that can be asked: where else is this, and which keyframe shows this place?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cosine_similarity, interpolate, normalize

from gsslam import geometry
from gsslam.attention.paged import PAGE_TOKENS
from gsslam.camera import Camera
from gsslam.errors import ConfigError
from gsslam.features.field import LEAST_SILHOUETTE, FeatureField, heat_map
from gsslam.features.head import FeatureHead
from gsslam.features.places import KeyframeIndex, RankedKeyframe
from gsslam.features.quantized_head import QuantizedHead
from gsslam.features.recognize import recognize
from gsslam.features.teacher import Teacher
from gsslam.gaussian_map import GaussianMap

# Views are decoded with one pixel for every 2 x 2 of the image: features are coarser anyway.
_STRIDE = 2
# Spheres decoded at a time.
_CHUNK = 8192


class MapFeatures:
    """The learned features of a map's spheres, and of its keyframes.

    ``feature_at`` and ``feature_of`` give what to look for; ``heat`` and ``scores`` say where it
    is. Not to be used by two threads at a time.
    """

    def __init__(
        self,
        gaussian_map: GaussianMap,
        head: FeatureHead,
        camera: Camera,
        low_pass: float,
        tokens: Callable[[], Mapping[int, torch.Tensor]],
        teacher: Callable[[], Teacher],
    ) -> None:
        """``tokens`` returns features (C, h, w) of keyframes by their index.

        It and ``teacher`` are called when they are needed first.
        """
        self.map, self.head, self.camera, self.low_pass = gaussian_map, head, camera, low_pass
        self._field = FeatureField(gaussian_map, camera, head, stride=_STRIDE, low_pass=low_pass)
        self._read_tokens, self._open_teacher = tokens, teacher

    @cached_property
    def teacher(self) -> Teacher:
        """The encoder that the features were learned from."""
        return self._open_teacher()

    @cached_property
    def tokens(self) -> Mapping[int, torch.Tensor]:
        """Features (C, h, w) of the keyframes, by their index in the sequence."""
        return self._read_tokens()

    @cached_property
    def index(self) -> KeyframeIndex:
        """The keyframes, to be found again."""
        sizes = [tokens[0].numel() for tokens in self.tokens.values()]
        pages = sum(-(-size // PAGE_TOKENS) for size in sizes)
        index = KeyframeIndex(self.head.channels, max(pages, 1))
        for name, tokens in self.tokens.items():
            index.add(name, tokens.float())
        return index

    def feature_at(
        self, T_world_camera: NDArray[np.float64], pixel: tuple[int, int]
    ) -> torch.Tensor:
        """Return the map's feature (C) at a pixel (column, row) of a view.

        Raises ConfigError where the pixel is outside of the image, or the map does not cover it.
        """
        column, row = pixel
        width, height = self.camera.width, self.camera.height
        if not (0 <= column < width and 0 <= row < height):
            raise ConfigError(
                f"pixel {column},{row} is outside of the image: columns are 0 to {width - 1},"
                f" rows 0 to {height - 1}"
            )
        queries, silhouette = self._field.render(geometry.inverse(T_world_camera), self.camera)
        if silhouette[row, column] < LEAST_SILHOUETTE:
            raise ConfigError(f"the map shows nothing at pixel {column},{row}: choose another one")
        with torch.no_grad():
            decoded: torch.Tensor = self.head(queries[:, row, column])
        return decoded

    def feature_of(self, image: torch.Tensor) -> torch.Tensor:
        """Return the encoder's mean feature (C) of an image (3, H, W), 0 to 1, such as a crop."""
        return self.teacher.encode(image).flatten(1).mean(1).to(self.head.value.device)

    def heat(self, feature: torch.Tensor, T_world_camera: NDArray[np.float64]) -> torch.Tensor:
        """Return how alike a view's pixels (H, W) are to a feature (C), −1 to 1.

        1 is equal, 0 no more alike than the average. 0 where the map does not cover the view.
        """
        decoded, silhouette = self._field.decode(geometry.inverse(T_world_camera))
        heat = heat_map(decoded, feature, self.head.mean) * (silhouette > LEAST_SILHOUETTE)
        size = (self.camera.height, self.camera.width)
        return interpolate(heat[None, None], size, mode="bilinear", align_corners=False)[0, 0]

    def scores(self, feature: torch.Tensor) -> torch.Tensor:
        """Return how alike the spheres (N) are to a feature (C), −1 to 1.

        0 for spheres that have learned nothing yet.
        """
        direction = normalize(feature - self.head.mean, dim=0)
        scores = []
        with torch.no_grad():
            for queries in torch.split(self.map.live_queries, _CHUNK, dim=1):
                decoded = normalize(self.head(queries.mT) - self.head.mean, dim=1)
                scores.append((decoded @ direction) * (queries != 0).any(0))
        return torch.cat(scores)

    def agreement(
        self,
        image: torch.Tensor,
        T_world_camera: NDArray[np.float64],
        *,
        stride: int = 8,
        head: nn.Module | None = None,
    ) -> float:
        """Return the mean cosine of the view's features to the encoder's of its image (3, H, W).

        One pixel in ``stride`` x ``stride`` counts if the map covers it. ``head`` decodes in place
        of the map's own.
        """
        size = -(-self.camera.width // stride), -(-self.camera.height // stride)
        camera = self.camera.resized(*size)
        target = self._field.target(self.teacher.encode(image), camera)
        with torch.no_grad():
            queries, silhouette = self._field.render(geometry.inverse(T_world_camera), camera)
            covered = silhouette > LEAST_SILHOUETTE
            decoded = (head or self.head)(queries[:, covered].mT)
        return float(cosine_similarity(decoded, target[:, covered].mT, dim=1).mean())

    def quantized_head(self, examples: int = 1024) -> QuantizedHead:
        """Return the head with 4-bit weights, with scales for the queries of some spheres."""
        taught = self.map.live_queries[:, (self.map.live_queries != 0).any(0)]
        return QuantizedHead(self.head, taught[:, :: -(-taught.shape[1] // examples)].mT)

    def recognize(self, image: torch.Tensor, count: int = 5) -> list[RankedKeyframe]:
        """Return the keyframes that look most like an image (3, H, W), 0 to 1, best first."""
        return recognize(image, self.index, self.teacher, count)
