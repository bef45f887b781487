"""The mapper: takes keyframes, grows the map and optimises it with the window's poses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.densify import filled_depth, spheres_from_pixels, thinned, unexplained_pixels
from gsslam.errors import CheckpointError, ConfigError
from gsslam.features.learner import FeatureLearner
from gsslam.features.map_features import MapFeatures
from gsslam.features.teacher import Teacher
from gsslam.frame import Frame
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import (
    Images,
    Keyframe,
    drop_least_useful,
    keyframe_arrays,
    keyframes_from_arrays,
)
from gsslam.memory import (
    KEYFRAME_BYTES,
    RECORD_BYTES,
    FeatureBytes,
    MemoryUse,
    plan_memory,
    tensor_bytes,
)
from gsslam.optimize import MapOptimizer
from gsslam.pruning import decay_of_window, make_room, prune
from gsslam.pyramid import FrameBuffers
from gsslam.raster.constants import ROW_RGB
from gsslam.slam_state import Arrays, of_prefix, with_prefix

# Share of the spheres that stays where their lists take too much memory.
_SHED = 0.9


class Mapper:
    """Owns the map and the keyframes."""

    def __init__(
        self,
        config: SlamConfig,
        camera: Camera,
        device: torch.device | str = "cpu",
        teacher: Teacher | None = None,
    ) -> None:
        """``teacher`` takes the place of the encoder that the configuration names for features."""
        self._config = config
        learner = None
        if config.features.enabled:
            learner = FeatureLearner(
                config.features, camera, config.map.low_pass, config.seed, teacher
            )
        self._learner = learner
        self._camera = camera
        self._random = np.random.default_rng(config.seed)
        decay = decay_of_window(config.pruning.window)
        self._optimizer = MapOptimizer(config.mapping, camera, config.map.low_pass, device, decay)
        dim, bytes_ = (config.features.dim, learner.bytes) if learner else (0, FeatureBytes())
        bytes_per_sphere = GaussianMap(1, dim).bytes_per_sphere()
        self._plan = plan_memory(config, camera, device, bytes_per_sphere, bytes_)
        self.map = GaussianMap(self._plan.capacity, dim, device)
        self.keyframes: list[Keyframe] = []
        # Used again: freeing and allocating anew leaves holes in the heap, which only grows then.
        self._spare: list[Images] = []
        # What the optimiser and the learner took in the end of the keyframe before.
        self._working = self._working_memory()

    @property
    def features(self) -> MapFeatures:
        """What the spheres have learned; raises ConfigError where that is nothing."""
        if self._learner is None:
            raise ConfigError("features are not learned: set features.enabled in the configuration")
        return self._learner.features(self.map)

    def integrate(self, keyframe: Keyframe) -> None:
        """Insert what the keyframe shows and the map does not; optimise, prune, learn features."""
        if self._plan.mapper_limit is not None:
            # So that the memory of the lists, which decides below, is the same in a resumed run.
            self._optimizer.drop_lists()
            if self._learner:
                self._learner.drop_lists()
        self.keyframes.append(keyframe)
        if self._spare:
            keyframe.move_images(self._spare.pop())
        self._insert(keyframe)
        mapping = self._config.mapping
        first = len(self.keyframes) == 1
        self.optimize(mapping.first_iterations if first else mapping.iterations)
        prune(self.map, self._config.pruning)
        if self._learner:
            self._learner.integrate(self.map, self.keyframes)
        self._working = self._working_memory()

    def memory(self) -> MemoryUse:
        """Return what map, keyframes, lists and buffers take, between two keyframes."""
        images = sum(tensor_bytes(k.rgb, k.depth) for k in self.keyframes)
        images += sum(tensor_bytes(*spare) for spare in self._spare)
        keyframes = MemoryUse(keyframes=images + RECORD_BYTES * len(self.keyframes))
        return self.map.memory() + self._working + keyframes

    def optimize(self, iterations: int) -> None:
        """Step through the window, round and round, the newest keyframe first."""
        window = self._window()
        # The first keyframe holds the world frame and the map's brightness in place.
        tasks = [(i % len(window), window[i % len(window)] > 0) for i in range(iterations)]
        # The last time round: every view counts once, with the spheres as they are in the end.
        observed = min(len(window), iterations) if self._config.pruning.judgements else 0
        keyframes = [self.keyframes[index] for index in window]
        self._optimizer.run(self.map, keyframes, tasks, observed)

    def finish(self) -> None:
        """Settle the map's brightness and what was learned."""
        self.center_exposure()
        if self._learner:
            self._learner.settle(self.keyframes)

    def center_exposure(self) -> None:
        """Give the map the brightness of the average keyframe instead of the first one's.

        Image = gain * map + bias leaves the map's brightness open; the mean gain and bias of the
        keyframes is the choice that is nearest to all images.
        """
        gain = float(np.mean([keyframe.gain for keyframe in self.keyframes]))
        bias = float(np.mean([keyframe.bias for keyframe in self.keyframes]))
        colours = self.map.live[ROW_RGB]
        colours.mul_(gain).add_(bias)
        for keyframe in self.keyframes:
            keyframe.gain /= gain
            keyframe.bias -= keyframe.gain * bias

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return map, keyframes without their images, and what else the next keyframe meets."""
        arrays = {
            **with_prefix("spheres", self.map.dump()),
            **with_prefix("keyframes", keyframe_arrays(self.keyframes)),
        }
        values = {
            "random": self._random.bit_generator.state,
            "images": [k.digest if k.has_images else "" for k in self.keyframes],
            "spare_images": len(self._spare),
            "working": asdict(self._working),
        }
        if self._learner:
            learned, values["features"] = self._learner.state()
            arrays |= with_prefix("features", learned)
        return arrays, values

    def restore(
        self, arrays: Arrays, values: dict[str, Any], read_frame: Callable[[int], Frame]
    ) -> None:
        """Take over what ``state`` returned; ``read_frame`` reads a keyframe's images again.

        Raises CheckpointError where those are not the images of before.
        """
        self.map.restore(of_prefix("spheres", arrays))
        buffers = FrameBuffers(self._camera, 1)

        def read_images(index: int) -> Images:
            buffers.load(read_frame(index))
            return buffers.copy_images()

        self.keyframes = keyframes_from_arrays(of_prefix("keyframes", arrays), read_images)
        for keyframe, digest in zip(self.keyframes, values["images"], strict=True):
            if keyframe.has_images and keyframe.digest != digest:
                raise CheckpointError(
                    f"frame {keyframe.index} is not the image of before: has the dataset changed?"
                )
        self._random.bit_generator.state = values["random"]
        newest = self.keyframes[-1:] * values["spare_images"]
        self._spare = [(torch.empty_like(k.rgb), torch.empty_like(k.depth)) for k in newest]
        self._working = MemoryUse(**values["working"])
        if self._learner:
            self._learner.restore(of_prefix("features", arrays), values["features"], self.map)

    def _working_memory(self) -> MemoryUse:
        use = self._optimizer.memory()
        return use + self._learner.memory() if self._learner else use

    def _insert(self, keyframe: Keyframe) -> None:
        densify = self._config.densify
        ((rgb, measured),) = self._optimizer.images_of([keyframe])
        planes = self._optimizer.render(self.map, keyframe.T_camera_world)
        mask = unexplained_pixels(planes, measured, densify)
        colours = rgb.float().div_(255).sub_(keyframe.bias).div_(keyframe.gain)
        # Without fill_unmeasured, no unmeasured pixel is unexplained.
        depth = filled_depth(measured, thinned(mask, densify.stride), densify)
        new = spheres_from_pixels(
            mask, colours, depth, self._camera, keyframe.T_camera_world, densify
        )
        self._make_room(new.shape[1])
        self.map.insert(new)

    def _make_room(self, wanted: int) -> None:
        """Let go of what the memory budget has no room for, so that ``wanted`` spheres fit."""
        make_room(self.map, wanted)
        if self._plan.keyframes is None:
            return
        records = RECORD_BYTES * self.keyframes[-1].index + KEYFRAME_BYTES * len(self.keyframes)
        excess = sum(keyframe.has_images for keyframe in self.keyframes)
        excess -= self._plan.keyframes_beside(records)
        while excess > 0 or self._may_pass_the_limit():
            dropped = drop_least_useful(self.keyframes, self._config.mapping.window_size)
            if not dropped:
                break
            self._spare = dropped
            excess -= 1
        if self._may_pass_the_limit():
            # Lists far longer than planned for: fewer spheres make shorter ones.
            make_room(self.map, wanted + self.map.capacity - int(_SHED * self.map.count))

    def _may_pass_the_limit(self) -> bool:
        """Return whether lists that grow once more would pass what the mapper may hold."""
        use, limit = self.memory(), self._plan.mapper_limit
        return limit is not None and use.total + use.lists // 2 > limit

    def _window(self) -> list[int]:
        """Return the newest keyframes, newest first, and some random older ones with images."""
        mapping, count = self._config.mapping, len(self.keyframes)
        newest = list(range(count - 1, max(count - 1 - mapping.window_size, -1), -1))
        older = [i for i in range(count - len(newest)) if self.keyframes[i].has_images]
        drawn = self._random.choice(
            len(older), min(mapping.window_random, len(older)), replace=False
        )
        return newest + sorted(older[int(index)] for index in drawn)
