"""Learned features beside mapping: the dictionary, the head and the queries, keyframe by keyframe.

Nothing here changes spheres, poses or anything else that the map without features depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gsslam.camera import Camera
from gsslam.config import FeaturesConfig
from gsslam.errors import ConfigError
from gsslam.features.field import FeatureField
from gsslam.features.head import FeatureHead
from gsslam.features.kmeans import StreamingKMeans
from gsslam.features.map_features import MapFeatures
from gsslam.features.teacher import Teacher, open_teacher
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.memory import FeatureBytes, MemoryUse, tensor_bytes
from gsslam.slam_state import Arrays, of_prefix, with_prefix

# Centres of the dictionary stay where they are as long as it grows.
_PATIENCE = 1 << 30
# For each sphere and channel of a query: slots of the gradient for the tiles that it reaches.
_LIST_BYTES = 16
# Features of another keyframe that the head decodes in every step.
_EXAMPLES = 512
# Steps for each keyframe when all begins anew.
_STEPS_ANEW = 2


class FeatureLearner:
    """Encodes keyframes, and distils their features into the queries of the map's spheres.

    The first keyframes make the dictionary by k-means; from then on every keyframe adds to it,
    gives the spheres in view their queries and takes steps on itself and on older ones. Whenever
    there are twice as many keyframes, all of this begins anew from what is known by then.
    """

    def __init__(
        self,
        config: FeaturesConfig,
        camera: Camera,
        low_pass: float,
        seed: int,
        teacher: Teacher | None = None,
    ) -> None:
        """Raise ConfigError where the encoder cannot be opened, or has too few channels.

        ``teacher`` takes the place of the configured one.
        """
        self._config, self._camera, self._low_pass = config, camera, low_pass
        self.teacher = teacher or open_teacher(config.teacher, config.teacher_scale)
        blank = torch.zeros(3, camera.height, camera.width, dtype=torch.uint8)
        self._shape = self.encode(blank).shape  # (C, h, w)
        if config.dim >= min(self._shape[0] + 1, config.atoms):
            raise ConfigError(
                f"features.dim = {config.dim} must be less than features.atoms = {config.atoms} and"
                f" at most the {self._shape[0]} channels of the encoder"
            )
        self._kmeans = StreamingKMeans(
            *(config.atoms, self._shape[0]),
            patience=_PATIENCE,
            seed=seed,
            most_new=-(-config.atoms // config.filling_keyframes),
        )
        # Of the keyframes with images, by their index: (C, h, w) float16.
        self.tokens: dict[int, torch.Tensor] = {}
        # Steps taken on each of them.
        self._steps: dict[int, int] = {}
        # How many keyframes there were when the dictionary was made last.
        self._made_at = 0
        # None as long as there is no dictionary.
        self.field: FeatureField | None = None
        self._random = np.random.default_rng([seed, 1])

    def features(self, gaussian_map: GaussianMap) -> MapFeatures:
        """Return what was learned, to be searched; raises ConfigError where there is none yet."""
        if self.field is None:
            raise ConfigError(
                "no features were learned: the dictionary needs features.first_keyframes ="
                f" {self._config.first_keyframes} keyframes, there are {len(self.tokens)}"
            )
        return MapFeatures(
            *(gaussian_map, self.field.head, self._camera, self._low_pass),
            tokens=lambda: self.tokens,
            teacher=lambda: self.teacher,
        )

    @property
    def bytes(self) -> FeatureBytes:
        """What features take beside the map's own arrays, for the plan of the memory."""
        channels, height, width = self._shape
        values = self._config.atoms * (channels + self._config.dim)
        pixels = -(-self._camera.width // self._config.stride)
        pixels *= -(-self._camera.height // self._config.stride)
        # The dictionary, the head with gradient and moments; a view decoded, and its gradient.
        fixed = 4 * (5 * values + 8 * pixels * (channels + self._config.dim))
        return FeatureBytes(
            fixed=fixed,
            keyframe=2 * channels * height * width,
            sphere=(4 + _LIST_BYTES) * self._config.dim,
        )

    def encode(self, rgb: torch.Tensor) -> torch.Tensor:
        """Return the encoder's features (C, h, w), float16, of an image (3, H, W) of bytes."""
        return self.teacher.encode(rgb.cpu().float() / 255).detach().cpu().half()

    def integrate(self, gaussian_map: GaussianMap, keyframes: Sequence[Keyframe]) -> None:
        """Learn from the newest of ``keyframes``, which the map has been optimised against."""
        newest = keyframes[-1]
        self.tokens[newest.index] = self.encode(newest.rgb)
        seen = [keyframe for keyframe in keyframes if keyframe.has_images]
        self.tokens = {keyframe.index: self.tokens[keyframe.index] for keyframe in seen}
        before = len(self._kmeans.made)
        self._kmeans.update(self.tokens[newest.index].float().flatten(1).mT)
        if self._dictionary_is_due(len(keyframes)):
            self._made_at = len(keyframes)
            self._begin_anew(gaussian_map, seen)
        elif self.field is not None:
            self.field.head.grow(self._kmeans.made[before:])
            self.field.begin(newest.T_camera_world, self.tokens[newest.index])
            self._learn(seen, self._config.iterations)

    def settle(self, keyframes: Sequence[Keyframe]) -> None:
        """Go through the keyframes with images some more times, in smaller and smaller steps."""
        seen = [keyframe for keyframe in keyframes if keyframe.has_images]
        if self.field is not None:
            self._learn(seen, self._config.final_rounds * len(seen), settle=True)

    def memory(self) -> MemoryUse:
        """Return what tokens, dictionary and head take."""
        dictionary = tensor_bytes(self._kmeans.centres)
        use = MemoryUse(keyframes=tensor_bytes(*self.tokens.values()), buffers=dictionary)
        return use if self.field is None else use + self.field.memory()

    def drop_lists(self) -> None:
        """Give the memory of the rasteriser's lists back."""
        if self.field is not None:
            self.field.drop_lists()

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return tokens, dictionary and head; the queries are among the map's arrays."""
        arrays = with_prefix("kmeans", self._kmeans.state())
        arrays |= {f"tokens.{index}": tokens.numpy() for index, tokens in self.tokens.items()}
        if self.field is not None:
            head = {k: t.cpu().numpy() for k, t in self.field.head.state_dict().items()}
            arrays |= with_prefix("head", head) | with_prefix("adam", _moments(self.field))
        values = {
            "random": self._random.bit_generator.state,
            "steps": {str(index): count for index, count in self._steps.items()},
            "made_at": self._made_at,
        }
        return arrays, values

    def restore(self, arrays: Arrays, values: dict[str, Any], gaussian_map: GaussianMap) -> None:
        """Take over what ``state`` returned, for a map that was restored already."""
        self._kmeans.restore(of_prefix("kmeans", arrays))
        tokens = of_prefix("tokens", arrays)
        self.tokens = {int(index): torch.from_numpy(array) for index, array in tokens.items()}
        head = {k: torch.from_numpy(array) for k, array in of_prefix("head", arrays).items()}
        if head:
            self.field = self._new_field(gaussian_map, FeatureHead.of_state(head))
            _set_moments(self.field, of_prefix("adam", arrays))
        self._random.bit_generator.state = values["random"]
        self._steps = {int(index): count for index, count in values["steps"].items()}
        self._made_at = values["made_at"]

    @property
    def _dim(self) -> int:
        return self._config.dim

    def _dictionary_is_due(self, keyframes: int) -> bool:
        first = max(self._config.first_keyframes, 2 * self._made_at)
        return keyframes >= first and len(self._kmeans.made) > self._dim

    def _begin_anew(self, gaussian_map: GaussianMap, seen: Sequence[Keyframe]) -> None:
        """Make head and queries from all keyframes with images."""
        gaussian_map.forget_queries()
        head = FeatureHead(self._kmeans.made, self._dim, capacity=self._config.atoms)
        self.field = self._new_field(gaussian_map, head)
        self._steps = {}
        for keyframe in seen:
            self.field.begin(keyframe.T_camera_world, self.tokens[keyframe.index])
        self._learn(seen, max(self._config.iterations, _STEPS_ANEW * len(seen)))

    def _new_field(self, gaussian_map: GaussianMap, head: FeatureHead) -> FeatureField:
        return FeatureField(
            *(gaussian_map, self._camera, head),
            stride=self._config.stride,
            query_rate=self._config.query_rate,
            head_rate=self._config.head_rate,
            low_pass=self._low_pass,
        )

    def _learn(self, seen: Sequence[Keyframe], steps: int, *, settle: bool = False) -> None:
        """Take steps, half of them where there were fewest, half at random.

        To ``settle``, they become smaller and smaller.
        """
        assert self.field is not None
        drawn = self._random.integers(len(seen), size=(steps, 2))
        for number, (place, other) in enumerate(drawn):
            keyframe = seen[place if number % 2 else self._least_taught(seen)]
            self._steps[keyframe.index] = self._steps.get(keyframe.index, 0) + 1
            examples = self.tokens[seen[other].index].flatten(1).mT
            examples = examples[:: -(-len(examples) // _EXAMPLES)]
            features = self.tokens[keyframe.index]
            rate = 1 - number / steps if settle else 1.0
            self.field.learn(keyframe.T_camera_world, features, examples, rate)

    def _least_taught(self, seen: Sequence[Keyframe]) -> int:
        """Return the place of the newest of the keyframes with the fewest steps."""
        return min(range(len(seen)), key=lambda i: (self._steps.get(seen[i].index, 0), -i))


def _moments(field: FeatureField) -> Arrays:
    """Return the moments and steps of the head's optimiser."""
    states = field.head_optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": value.cpu().numpy()
        for number, state in states.items()
        for name, value in state.items()
    }


def _set_moments(field: FeatureField, arrays: Arrays) -> None:
    stored = field.head_optimizer.state_dict()
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, array in arrays.items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = torch.from_numpy(array)
    field.head_optimizer.load_state_dict({**stored, "state": state})
