"""The table of operations against the native module, and every check that it makes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import gsslam.native
from gsslam import _native
from gsslam.arguments import (
    Array,
    Flag,
    Native,
    Number,
    Numbers,
    Records,
    Size,
    Sizes,
    native_name,
)
from gsslam.errors import NativeError
from gsslam.native import Plan, native_structure
from gsslam.operations import PLANS, STRUCTURES
from gsslam.scope import Scope

DEVICES = {"cpu": torch.device("cpu"), "cuda": torch.device("cuda", 0)}
CLASSES = [
    pytest.param(name, device, id=native_name(name, DEVICES[device]))
    for name, table in PLANS.items()
    for device in table.devices
]
HEIGHT, WIDTH, CAPACITY = 6, 8, 10


def native_type(argument: Any, device: torch.device) -> str:
    """Return the type that nanobind must give to an argument."""
    if isinstance(argument, Native):
        kind = native_name(argument.kind, device) if argument.is_plan else argument.kind
        return f"gsslam._native.{kind}"
    if isinstance(argument, Records):
        fields = [native_type(field, device) for field in argument.fields]
        item = f"tuple[{', '.join(fields)}]" if len(fields) > 1 else fields[0]
        return f"Sequence[{item}]"
    if isinstance(argument, Sizes):
        return "Sequence[int]"
    return {Number: "float", Flag: "bool", Numbers: "Sequence[float]"}.get(type(argument), "int")


def signature(function: Any) -> str:
    """Return the types of a native method's parameters, separated by commas."""
    text = re.sub(r"collections\.abc\.", "", function.__doc__)
    inside = text[text.index("(self") + len("(self") : text.rindex(") ->")]
    return re.sub(r", \w+: ", ", ", inside).removesuffix(", /").removeprefix(", ")


@pytest.mark.parametrize(("name", "device"), CLASSES)
def test_the_table_is_what_the_native_module_takes(name: str, device: str) -> None:
    if device == "cuda" and not hasattr(_native, "CudaAdam"):
        pytest.skip("the native module was built without CUDA")
    where, table = DEVICES[device], PLANS[name]
    native = getattr(_native, native_name(name, where))
    last = ["int"] if device == "cuda" else []  # the device's index or the stream
    make = [native_type(argument, where) for argument in table.make]
    assert signature(native.__init__) == ", ".join(make + last)
    operations = {o.name: o for o in table.operations if device in o.devices}
    methods = {key for key in vars(native) if not key.startswith("_")} - {"bytes"}
    assert methods == set(operations)
    for method, operation in operations.items():
        expected = [native_type(argument, where) for argument in operation.arguments]
        assert signature(getattr(native, method)) == ", ".join(expected + last)


@pytest.mark.parametrize("name", STRUCTURES)
def test_so_are_structures(name: str) -> None:
    expected = [native_type(argument, DEVICES["cpu"]) for argument in STRUCTURES[name]]
    assert signature(getattr(_native, name).__init__) == ", ".join(expected)


def view() -> Any:
    return native_structure(
        "View",
        width=WIDTH,
        height=HEIGHT,
        intrinsics=[8.0, 8.0, 4.0, 3.0],
        low_pass=0.3,
        T_camera_world=np.eye(4)[:3].ravel().tolist(),
    )


def plans(device: str) -> dict[str, Plan]:
    """Return every plan that both devices have, with the sizes that its owner knows."""
    values = {"Adam": {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}}
    values["Rasterizer"] = {"num_features": 0}
    made = {
        name: Plan(name, device, **values.get(name, {}))
        for name, table in PLANS.items()
        if len(table.devices) == 2
    }
    made["Rasterizer"].sizes.update(rows=8, planes=5, height=HEIGHT, width=WIDTH)
    made["Tracking"].sizes.update(height=HEIGHT, width=WIDTH)
    return made


def good_values(plan: dict[str, Plan], name: str, device: str) -> dict[str, Any]:
    """Return arguments that every operation takes, from the table."""
    kind, operation_name = name.split(".")
    sizes = {"rows": 8, "capacity": CAPACITY, "planes": 5, "height": HEIGHT, "width": WIDTH}
    sizes |= {"batch": 2, "heads": 4, "kv_heads": 2, "queries": 3, "keys": 5}
    sizes |= {"dim": 8, "value_dim": 16, "parts": 3}
    sizes |= {"pages": 2, "table_pages": 2}
    (operation,) = (
        o for o in PLANS[kind].operations if o.name == operation_name and device in o.devices
    )
    natives = {
        "View": view(),
        "LossWeights": native_structure(
            "LossWeights", ssim=0.2, depth=0.1, silhouette=0.0, silhouette_threshold=0.5
        ),
        "TrackingWeights": native_structure(
            "TrackingWeights",
            huber_colour=0.05,
            depth_weight=0.1,
            depth_sigma_base=0.01,
            depth_sigma_quadratic=0.003,
            silhouette_threshold=0.5,
        ),
        "Rasterizer": plan["Rasterizer"].native,
    }
    values: dict[str, Any] = {}
    for argument in operation.arguments:
        if isinstance(argument, Array):
            shape = [sizes[s] if isinstance(s, str) else s for s in argument.shape]
            values[argument.name] = torch.zeros(shape, dtype=argument.dtype, device=device)
        elif isinstance(argument, Native):
            values[argument.name] = natives[argument.kind]
        elif not isinstance(argument, (Size, Sizes)):
            values[argument.name] = 1
    return values


# Those that take tensors, of plans that both devices have.
NAMES = sorted(
    {
        f"{kind}.{operation.name}"
        for kind, table in PLANS.items()
        for operation in table.operations
        if len(table.devices) == 2 and any(isinstance(a, Array) for a in operation.arguments)
    }
)


def call(plan: dict[str, Plan], name: str, values: dict[str, Any]) -> Any:
    kind, operation = name.split(".")
    return plan[kind].call(operation, **values)


def broken(name: str, good: torch.Tensor) -> dict[str, Any]:
    """Return what must be refused in place of a tensor, by what is wrong with it."""
    longer = torch.zeros((good.shape[0] + 1, *good.shape[1:]), device=good.device)
    strided = torch.zeros((*good.shape, 2), dtype=good.dtype, device=good.device)[..., 0]
    other = "cpu" if good.is_cuda else "meta"
    return {
        "float64": good.double(),
        str(tuple(longer.shape)): longer.to(good.dtype),
        "strides": strided,
        f"on {other}": torch.zeros(good.shape, dtype=good.dtype, device=other),
        "sparse": good.to_sparse(),
        str((1, *good.shape)): good[None],
        "ndarray": good.float().cpu().numpy(),
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_checked(name: str, device: str) -> None:
    kind, operation = name.split(".")
    if not any(o.name == operation and device in o.devices for o in PLANS[kind].operations):
        pytest.skip(f"{name} is not an operation of the {device}")
    plan = plans(device)
    call(plan, "Rasterizer.project", good_values(plan, "Rasterizer.project", device))
    good = good_values(plan, name, device)
    call(plan, name, good)
    tensors = {key: value for key, value in good.items() if isinstance(value, torch.Tensor)}
    assert tensors
    for key, tensor in tensors.items():
        for wrong, value in broken(key, tensor).items():
            if key == "parts" and wrong == "(4,)":
                continue  # more than enough room
            # A tensor of another shape may speak for the others where it comes first.
            with pytest.raises(NativeError, match=f"^{name}: ") as caught:
                call(plan, name, {**good, key: value})
            text = str(caught.value)
            assert "\n" not in text
            if f"{key} must be" in text:
                assert wrong in text
            else:
                assert value.dtype == tensor.dtype and value.shape != tensor.shape
    with pytest.raises(NativeError, match="has no argument colours"):
        call(plan, name, {**good, "colours": 1})
    for key in good.keys() - {"error", "statistics", "key_lengths"}:
        missing = {k: v for k, v in good.items() if k != key}
        with pytest.raises(NativeError, match=f"{key} must be .*None"):
            call(plan, name, missing)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, None, "1", True, 1j, [1.0]])
def test_numbers_are_finite_numbers(value: Any) -> None:
    plan = plans("cpu")
    good = good_values(plan, "ImageLoss.evaluate", "cpu")
    with pytest.raises(NativeError, match="gain must be a finite number"):
        call(plan, "ImageLoss.evaluate", {**good, "gain": value})


@pytest.mark.parametrize("value", [-1, CAPACITY + 1, 1.0, True, None])
def test_counts_fit_into_the_capacity(value: Any) -> None:
    plan = plans("cpu")
    good = good_values(plan, "Adam.step", "cpu")
    expected = f"count must be a whole number from 0 to capacity = {CAPACITY}; got {value}"
    with pytest.raises(NativeError, match=expected):
        call(plan, "Adam.step", {**good, "count": value})
    for count in (0, np.int64(CAPACITY)):
        call(plan, "Adam.step", {**good, "count": count})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width must be a whole number of at least 1; got 0"),
        ({"low_pass": -0.1}, "low_pass must be a finite number of at least 0; got -0.1"),
        ({"intrinsics": [1.0, 2.0, 3.0]}, "intrinsics must be 4 finite numbers"),
        ({"T_camera_world": [np.nan] * 12}, "T_camera_world must be 12 finite numbers"),
    ],
)
def test_views_are_checked(change: dict[str, Any], message: str) -> None:
    good = {
        "width": WIDTH,
        "height": HEIGHT,
        "intrinsics": [1.0] * 4,
        "low_pass": 0.3,
        "T_camera_world": [1.0] * 12,
    }
    native_structure("View", **good)
    with pytest.raises(NativeError, match=message):
        native_structure("View", **{**good, **change})


def records() -> tuple[Records, dict[str, Any]]:
    (operation,) = PLANS["Tracker"].operations
    (levels,) = (a for a in operation.arguments if a.name == "levels")
    assert isinstance(levels, Records)
    return levels, {}


def level(height: int, width: int) -> tuple[Any, ...]:
    rgb, depth = torch.zeros(3, height, width), torch.zeros(height, width)
    return width, height, [1.0] * 4, rgb, depth, 5


def test_records_have_sizes_of_their_own_and_are_checked_one_by_one() -> None:
    levels, noted = records()
    scope = Scope("Tracker.estimate", torch.device("cpu"), {"capacity": 3}, noted, False)
    images = [level(6, 8), level(3, 4)]
    checked = levels.check(images, scope)
    assert [record[:2] for record in checked] == [(8, 6), (4, 3)]
    assert [record[3] for record in checked] == [image[3].data_ptr() for image in images]
    assert noted["levels[1].depth"] == (torch.float32, (3, 4))
    assert scope.sizes == {"capacity": 3}
    bad = (*images[1][:4], torch.zeros(3, 5), 5)
    expected = r"levels\[1\]: depth must be torch.float32, shape \(3, 4\), .* got .*\(3, 5\)"
    with pytest.raises(NativeError, match=expected):
        levels.check([images[0], bad], scope)
    with pytest.raises(NativeError, match=r"levels\[0\]: record must be a tuple of width, height"):
        levels.check([images[0][:5]], scope)
    with pytest.raises(NativeError, match="levels must be a list; got NoneType"):
        levels.check(None, scope)


def test_tensors_are_read_for_nan_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plans("cpu")
    good = good_values(plan, "ImageLoss.evaluate", "cpu")
    good["colour"][0, 1, 2:4] = torch.nan
    good["depth"][0, 0] = torch.nan  # means that nothing was measured
    call(plan, "ImageLoss.evaluate", good)
    monkeypatch.setattr(gsslam.native, "CHECKS_FINITE", True)
    with pytest.raises(NativeError, match="colour must be finite; got 2 values that are NaN"):
        call(plan, "ImageLoss.evaluate", good)
    good["colour"].zero_()
    call(plan, "ImageLoss.evaluate", good)


def test_fused_plans_have_no_cpu_kernels() -> None:
    with pytest.raises(NativeError, match="Mapping has no kernels for device cpu"):
        Plan("Mapping", "cpu")
