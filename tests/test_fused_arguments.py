"""What the fused steps pass to the table, checked without the GPU that they run on."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from gsslam import fused
from gsslam.camera import Camera
from gsslam.config import MappingConfig
from gsslam.errors import NativeError
from gsslam.gaussian_map import GaussianMap
from gsslam.keyframes import Keyframe
from gsslam.normal_equations import ResidualWeights
from gsslam.operation import Operation
from gsslam.operations import PLANS
from gsslam.pyramid import ImageLevel
from gsslam.scope import Scope

HEIGHT, WIDTH, CAPACITY = 6, 8, 10


class UnrunPlan:
    """A Plan that checks its arguments on the CPU and runs nothing: for what only a GPU can run."""

    checked: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, kind: str, device: str, **values: Any) -> None:
        self._kind, self._sizes = kind, {}
        self._check(Operation("make", PLANS[kind].make), values, self._sizes)

    def call(self, name: str, /, **values: Any) -> Any:
        (operation,) = (o for o in PLANS[self._kind].operations if o.name == name)
        self._check(operation, values, self._sizes.copy())
        raise NativeError("nothing was run")

    def _check(self, operation: Operation, values: dict[str, Any], sizes: dict[str, int]) -> None:
        title = f"{self._kind}.{operation.name}"
        scope = Scope(title, torch.device("cpu"), sizes, {}, True)
        self.checked[title] = operation.check(values, scope)


def test_the_fused_steps_pass_what_the_table_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "Plan", UnrunPlan)
    camera = Camera(WIDTH, HEIGHT, 8.0, 8.0, 4.0, 3.0)
    gaussian_map = GaussianMap(CAPACITY)
    rgb, depth = torch.zeros(3, HEIGHT, WIDTH, dtype=torch.uint8), torch.ones(HEIGHT, WIDTH)
    images = rgb, depth
    keyframe = Keyframe(0, np.eye(4), 1.0, 0.0, rgb, depth)
    adam = (0.9, 0.99, 1e-8)
    mapping = fused.FusedMapping(MappingConfig(), camera, 0.3, [1e-3] * 8, adam, "cpu", decay=0.9)
    with pytest.raises(NativeError, match="nothing was run"):
        mapping.run(gaussian_map, [keyframe] * 2, [images] * 2, [(0, False), (1, True)], observed=5)
    *_, states, tasks, statistics, decay, observed = UnrunPlan.checked["Mapping.run"]
    assert statistics == gaussian_map.observations.statistics.data_ptr()
    assert (decay, observed) == (0.9, 2)
    pose = np.eye(4)[:3].ravel().tolist()
    state = (pose, 1.0, 0.0, [0.0] * 8, [0.0] * 8, 0, rgb.data_ptr(), depth.data_ptr())
    assert (states, tasks) == ([state, state], [(0, False), (1, True)])
    images = rgb, torch.ones(HEIGHT, WIDTH + 1)
    with pytest.raises(NativeError, match=r"Mapping.run: keyframes\[0\]: depth must be"):
        mapping.run(gaussian_map, [keyframe], [images], [(0, False)], observed=0)
    planes = torch.zeros(5, HEIGHT, WIDTH)
    with pytest.raises(NativeError, match="nothing was run"):
        mapping.render(gaussian_map, np.eye(4), planes)
    address, capacity, count, _, image = UnrunPlan.checked["Mapping.render"]
    assert (address, capacity) == (gaussian_map.parameters.data_ptr(), CAPACITY)
    assert (count, image) == (0, planes.data_ptr())
    with pytest.raises(NativeError, match=r"Mapping.render: image must be"):
        mapping.render(gaussian_map, np.eye(4), planes[:4])

    weights = ResidualWeights(0.05, 0.1, 0.01, 0.003, 0.5)
    tracker = fused.FusedTracker(weights, 0.3, 0.01, 1e-4, (1e-4, 1e-7, 10.0), "cpu")
    level = ImageLevel(camera, torch.zeros(3, HEIGHT, WIDTH), depth)
    with pytest.raises(NativeError, match="nothing was run"):
        tracker.estimate(gaussian_map.parameters, 0, [(level, 5)], [np.eye(4)] * 2, 1.0, 0.0)
    low_pass, address, capacity, count, levels, guesses, *exposure = UnrunPlan.checked[
        "Tracker.estimate"
    ]
    assert (low_pass, address, capacity) == (0.3, gaussian_map.parameters.data_ptr(), CAPACITY)
    assert (count, guesses, exposure) == (0, [pose, pose], [1.0, 0.0])
    intrinsics = [8.0, 8.0, 4.0, 3.0]
    assert levels == [(WIDTH, HEIGHT, intrinsics, level.rgb.data_ptr(), depth.data_ptr(), 5)]
