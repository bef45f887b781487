"""The table of native operations: what each takes, in the order in which the module takes it.

Calls are made from this table, arguments are checked by it, and the flight recorder writes what it
says, so that declared and actual types cannot differ. On a GPU the stream follows the last argument
of an operation, and the device's index that of ``make``.
"""

from __future__ import annotations

import torch

from gsslam.arguments import (
    Argument,
    Array,
    Flag,
    Given,
    Native,
    Number,
    Numbers,
    Records,
    Size,
    Whole,
)
from gsslam.feature_operations import ATTENTION, LINEAR_W4A8, LINEAR_W4A16
from gsslam.operation import CPU, CUDA, Operation, PlanTable
from gsslam.raster import constants as c

_PARAMETERS = Array("parameters", ("rows", "capacity"))
_COUNT = Whole("count", 0, "capacity")
_PROJECT = (_PARAMETERS, Size("capacity"), _COUNT, Native("view", "View"))
# Upper rows of a (4, 4) matrix.
_POSE = Numbers("T_camera_world", 12)
_INTRINSICS = Numbers("intrinsics", 4)
_GAIN, _BIAS = Number("gain"), Number("bias")
# What is left of the statistics after a step that sees the sphere.
_DECAY = Number("decay", 0, 1)
# The keyframe's six of pose and two of exposure.
_KEYFRAME_UNKNOWNS = 8

_RASTERIZER = PlanTable(
    make=(Whole("num_features", 0, c.MAX_FEATURES),),
    operations=(
        Operation("project", (*_PROJECT, Number("list_margin", 0)), devices=CPU),
        Operation("project", _PROJECT, devices=CUDA),
        Operation("refresh", (Native("view", "View"),), devices=CPU),
        Operation("queue_project", _PROJECT, devices=CUDA),
        Operation("forward", (Array("image", ("planes", "height", "width")),)),
        Operation(
            "backward",
            (
                _PARAMETERS,
                Size("capacity"),
                _COUNT,
                Array("image", ("planes", "height", "width"), finite=True),
                Array("grad_image", ("planes", "height", "width"), finite=True),
                Array("error", ("height", "width"), optional=True, finite=True),
                Array("grad_parameters", ("rows", "capacity")),
                Array("statistics", (c.STATISTICS, "capacity"), optional=True),
                _DECAY,
            ),
        ),
    ),
)

_OBSERVATION = (
    Native("plan", "Rasterizer", is_plan=True),
    Array("rgb", (3, "height", "width"), finite=True),
    Array("depth", ("height", "width")),
    _GAIN,
    _BIAS,
    Native("weights", "TrackingWeights"),
)
_SAMPLING = (Whole("stride", 1), Whole("skew"))
_TRACKING = PlanTable(
    make=(),
    operations=(
        Operation("normal_equations", (*_OBSERVATION, *_SAMPLING), devices=CPU),
        Operation("normal_equations", _OBSERVATION, devices=CUDA),
        Operation("residuals", (*_OBSERVATION, *_SAMPLING), devices=CPU),
    ),
)

_IMAGE_LOSS = PlanTable(
    make=(),
    operations=(
        Operation(
            "evaluate",
            (
                Array(
                    "rendered",
                    ("planes", "height", "width"),
                    least=(c.PLANE_FEATURE, 1, 1),
                    finite=True,
                ),
                Array("colour", (3, "height", "width"), finite=True),
                Array("depth", ("height", "width")),
                Size("width"),
                Size("height"),
                _GAIN,
                _BIAS,
                Native("weights", "LossWeights"),
                Array("gradient", ("planes", "height", "width")),
                Array("error", ("height", "width")),
            ),
        ),
    ),
)

# The native tables of bias corrections are made for betas up to this.
_MAX_BETA = 0.9999
_ADAM = PlanTable(
    make=(
        Number("beta1", 0, _MAX_BETA),
        Number("beta2", 0, _MAX_BETA),
        Number("epsilon", positive=True),
    ),
    operations=(
        Operation(
            "step",
            (
                _PARAMETERS,
                Array("gradient", ("rows", "capacity")),
                Array("first_moment", ("rows", "capacity")),
                Array("second_moment", ("rows", "capacity")),
                Array("steps", ("capacity",), torch.int32),
                Array("learning_rates", ("rows",), finite=True),
                Size("rows"),
                Size("capacity"),
                _COUNT,
            ),
        ),
    ),
)

_MAPPING = PlanTable(
    make=(
        Given("width"),
        Given("height"),
        _INTRINSICS,
        Number("low_pass", 0),
        Native("weights", "LossWeights"),
        Numbers("adam", 3),
        Numbers("keyframe_rates", 2),
        Numbers("sphere_rates", c.ROW_FEATURE),
    ),
    operations=(
        Operation(
            "render",
            (*_PROJECT, Array("image", (c.PLANE_FEATURE, "height", "width"))),
            devices=CUDA,
        ),
        Operation(
            "run",
            (
                _PARAMETERS,
                Array("first_moment", ("rows", "capacity")),
                Array("second_moment", ("rows", "capacity")),
                Array("steps", ("capacity",), torch.int32),
                Size("capacity"),
                _COUNT,
                Records(
                    "keyframes",
                    (
                        _POSE,
                        _GAIN,
                        _BIAS,
                        Numbers("moment1", _KEYFRAME_UNKNOWNS),
                        Numbers("moment2", _KEYFRAME_UNKNOWNS),
                        Whole("steps"),
                        Array("rgb", (3, "height", "width"), torch.uint8),
                        Array("depth", ("height", "width")),
                    ),
                ),
                Records("tasks", (Whole("keyframe"), Flag("refine"))),
                Array("statistics", (c.STATISTICS, "capacity")),
                _DECAY,
                Whole("observed", 0),
            ),
            devices=CUDA,
        ),
    ),
    devices=CUDA,
)

_TRACKER = PlanTable(
    make=(
        Native("weights", "TrackingWeights"),
        Number("exposure_prior", 0),
        Number("convergence_step", 0),
        Numbers("damping", 3),
        Number("list_margin", 0),
    ),
    operations=(
        Operation(
            "estimate",
            (
                Number("low_pass", 0),
                _PARAMETERS,
                Size("capacity"),
                _COUNT,
                Records(
                    "levels",
                    (
                        Given("width"),
                        Given("height"),
                        _INTRINSICS,
                        Array("rgb", (3, "height", "width"), finite=True),
                        Array("depth", ("height", "width")),
                        Whole("iterations", 1),
                    ),
                ),
                Records("guesses", (_POSE,)),
                _GAIN,
                _BIAS,
            ),
            devices=CUDA,
        ),
    ),
    devices=CUDA,
)

# Classes of the native module, without the device in front.
PLANS: dict[str, PlanTable] = {
    "Adam": _ADAM,
    "Attention": ATTENTION,
    "ImageLoss": _IMAGE_LOSS,
    "LinearW4A8": LINEAR_W4A8,
    "LinearW4A16": LINEAR_W4A16,
    "Mapping": _MAPPING,
    "Rasterizer": _RASTERIZER,
    "Tracker": _TRACKER,
    "Tracking": _TRACKING,
}

# Plain values that operations take; the same class for every device.
STRUCTURES: dict[str, tuple[Argument, ...]] = {
    "LossWeights": (
        Number("ssim"),
        Number("depth"),
        Number("silhouette"),
        Number("silhouette_threshold", 0),
    ),
    "TrackingWeights": (
        Number("huber_colour", positive=True),
        Number("depth_weight", 0),
        Number("depth_sigma_base", 0),
        Number("depth_sigma_quadratic", 0),
        Number("silhouette_threshold"),
    ),
    "View": (Given("width"), Given("height"), _INTRINSICS, Number("low_pass", 0), _POSE),
}
