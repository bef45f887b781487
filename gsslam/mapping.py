"""The mapper: takes keyframes, grows the map and optimises it with the window's poses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.densify import filled_depth, spheres_from_pixels, unexplained_pixels
from gsslam.errors import CheckpointError
from gsslam.frame import Frame
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe, keyframe_arrays, keyframes_from_arrays
from gsslam.optimize import MapOptimizer
from gsslam.pruning import make_room, prune_faint_and_large
from gsslam.raster.constants import ROW_RGB
from gsslam.slam_state import Arrays, of_prefix, with_prefix


class Mapper:
    """Owns the map and the keyframes."""

    def __init__(
        self, config: SlamConfig, camera: Camera, device: torch.device | str = "cpu"
    ) -> None:
        self._config = config
        self._camera = camera
        self._random = np.random.default_rng(config.seed)
        self._optimizer = MapOptimizer(config.mapping, camera, config.map.low_pass, device)
        self.map = GaussianMap(config.map.capacity, device=device)
        self.keyframes: list[Keyframe] = []

    def integrate(self, keyframe: Keyframe) -> None:
        """Insert what the keyframe shows and the map does not, optimise, and prune."""
        self.keyframes.append(keyframe)
        self._insert(keyframe)
        mapping = self._config.mapping
        first = len(self.keyframes) == 1
        self.optimize(mapping.first_iterations if first else mapping.iterations)
        prune_faint_and_large(self.map, self._config.pruning)

    def optimize(self, iterations: int) -> None:
        """Step through the window, round and round, the newest keyframe first."""
        window = self._window()
        # The first keyframe holds the world frame and the map's brightness in place.
        tasks = [(i % len(window), window[i % len(window)] > 0) for i in range(iterations)]
        self._optimizer.run(self.map, [self.keyframes[index] for index in window], tasks)

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
        """Return map, keyframes without their images, and random numbers as they stand."""
        arrays = {
            **with_prefix("spheres", self.map.dump()),
            **with_prefix("keyframes", keyframe_arrays(self.keyframes)),
        }
        values = {
            "random": self._random.bit_generator.state,
            "images": [keyframe.digest for keyframe in self.keyframes],
        }
        return arrays, values

    def restore(
        self, arrays: Arrays, values: dict[str, Any], read_frame: Callable[[int], Frame]
    ) -> None:
        """Take over what ``state`` returned; ``read_frame`` reads a keyframe's images again.

        Raises CheckpointError where those are not the images of before.
        """
        self.map.restore(of_prefix("spheres", arrays))
        self.keyframes = keyframes_from_arrays(
            of_prefix("keyframes", arrays), read_frame, self.map.parameters.device
        )
        for keyframe, digest in zip(self.keyframes, values["images"], strict=True):
            if keyframe.digest != digest:
                raise CheckpointError(
                    f"frame {keyframe.index} is not the image of before: has the dataset changed?"
                )
        self._random.bit_generator.state = values["random"]

    def _insert(self, keyframe: Keyframe) -> None:
        densify = self._config.densify
        planes = self._optimizer.render(self.map, keyframe.T_camera_world)
        mask = unexplained_pixels(planes, keyframe.depth, densify)
        colours = (keyframe.rgb.float() / 255 - keyframe.bias) / keyframe.gain
        depth = filled_depth(keyframe.depth, densify) if densify.fill_unmeasured else keyframe.depth
        new = spheres_from_pixels(
            mask, colours, depth, self._camera, keyframe.T_camera_world, densify
        )
        make_room(self.map, new.shape[1])
        self.map.insert(new)

    def _window(self) -> list[int]:
        """Return the newest keyframes, newest first, and some random older ones."""
        mapping, count = self._config.mapping, len(self.keyframes)
        newest = list(range(count - 1, max(count - 1 - mapping.window_size, -1), -1))
        older = count - len(newest)
        drawn = self._random.choice(older, min(mapping.window_random, older), replace=False)
        return newest + sorted(int(index) for index in drawn)
