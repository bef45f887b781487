"""The table's part for learned features: attention, and linear layers of 4-bit weights."""

from __future__ import annotations

import torch

from gsslam import _native
from gsslam.arguments import Argument, Array, Flag, Given, Number, Size, Sizes, Whole
from gsslam.operation import CPU, CUDA, Operation, PlanTable

SHAPE = ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim")
_ROWS = ("batch", "heads", "queries")
_QUERY, _OUTPUT = (*_ROWS, "dim"), (*_ROWS, "value_dim")
_KEY, _VALUE = ("batch", "kv_heads", "keys", "dim"), ("batch", "kv_heads", "keys", "value_dim")
_LENGTHS = Array("key_lengths", ("batch",), torch.int32, optional=True)
_LOG_SUM_EXP, _SCALE = Array("log_sum_exp", _ROWS), Number("scale")
# Keys before and after the query's own position, -1 for all; and that position's offset.
_LIMITS = (Whole("left", -1), Whole("right", -1), Whole("offset", -(2**62)))


def _inputs(dtype: torch.dtype) -> tuple[Argument | Sizes, ...]:
    tokens = (("query", _QUERY), ("key", _KEY), ("value", _VALUE))
    arrays = (Array(name, shape, dtype) for name, shape in tokens)
    return (Sizes(SHAPE), _SCALE, *arrays, *_LIMITS, _LENGTHS)


def _forward(dtype: torch.dtype) -> tuple[Argument | Sizes, ...]:
    return (*_inputs(dtype), Array("output", _OUTPUT, dtype), _LOG_SUM_EXP)


def _backward(dtype: torch.dtype) -> tuple[Argument | Sizes, ...]:
    return (
        *_forward(dtype),
        Array("grad_output", _OUTPUT, dtype),
        Array("grad_log_sum_exp", _ROWS),
        Array("delta", _ROWS),
        Array("grad_query", _QUERY, dtype),
        Array("grad_key", _KEY, dtype),
        Array("grad_value", _VALUE, dtype),
    )


_PARTS = Array("parts", ("parts",))
_PAGES = ("pages", "kv_heads", _native.PAGE_TOKENS)

ATTENTION = PlanTable(
    make=(),
    operations=(
        Operation("forward", _forward(torch.float32), devices=CPU),
        Operation(
            "forward_paged",
            (
                *(Size(name) for name in ("batch", "heads", "kv_heads", "queries")),
                *(Size("dim"), Size("value_dim")),
                _SCALE,
                Array("query", _QUERY),
                Array("key", (*_PAGES, "dim")),
                Array("value", (*_PAGES, "value_dim")),
                Array("key_lengths", ("batch",), torch.int32),
                Array("table", ("batch", "table_pages"), torch.int32),
                Size("table_pages"),
                Array("output", _OUTPUT),
                _LOG_SUM_EXP,
            ),
            devices=CPU,
        ),
        Operation("backward", _backward(torch.float32), devices=CPU),
        # How many numbers the parts of the sums take, where they are split.
        Operation("forward_parts", tuple(Whole(name) for name in SHAPE), devices=CUDA),
        Operation("backward_parts", tuple(Whole(name) for name in SHAPE), devices=CUDA),
        *(
            Operation(f"{name}_{str(dtype).removeprefix('torch.')}", (*make(dtype), _PARTS), CUDA)
            for name, make in (("forward", _forward), ("backward", _backward))
            for dtype in (torch.float16, torch.bfloat16)
        ),
    ),
)

# Weights as gsslam.quant.weights packs them.
LINEAR_WEIGHTS = (
    Array("steps", ("tiles", "step_rows", 64), torch.uint8),
    Array("scales", ("tiles", "groups", "tile")),
    Array("zeros", ("tiles", "groups", "tile"), torch.uint8),
    Array("bias", ("outputs",), optional=True),
    Array("factors", ("inputs",), optional=True),
)
_STEPS, _SCALES, _ZEROS, _BIAS, _FACTORS = LINEAR_WEIGHTS
LINEAR_W4A8 = PlanTable(
    make=(),
    operations=(
        Operation(
            "run",
            (
                *(_STEPS, _SCALES, _ZEROS, _BIAS),
                *(Given("outputs"), Given("inputs")),
                Array("x", ("rows", "inputs")),
                _FACTORS,
                Size("rows"),
                Flag("vnni"),
                Array("y", ("rows", "outputs")),
            ),
        ),
    ),
    devices=CPU,
)


def _run_w4a16(dtype: torch.dtype) -> Operation:
    name = str(dtype).removeprefix("torch.")
    arguments = (
        Array("codes", ("tiles", "groups", 1024), torch.uint8),
        Array("scales", ("tiles", "groups", 8, 2)),
        Array("zeros", ("tiles", "groups", 8, 2), torch.uint8),
        _BIAS,
        Given("outputs"),
        *(Size("tiles"), Size("groups")),
        Array("x", ("rows", "inputs"), dtype),
        *(Size("rows"), Size("inputs")),
        Array("y", ("rows", "outputs"), dtype),
    )
    return Operation(f"run_{name}", arguments)


# Weights as gsslam.quant.fragments orders them.
LINEAR_W4A16 = PlanTable(
    make=(),
    operations=(_run_w4a16(torch.float16), _run_w4a16(torch.bfloat16)),
    devices=CUDA,
)
