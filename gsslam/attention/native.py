"""The native attention as PyTorch operations: differentiable, and known to torch.compile.

``torch.ops.gsslam.attention`` keeps its output and log-sum-exp for the backward pass, which makes
the weights anew from them; neither pass stores a matrix of queries times keys, and both give the
same bytes every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from gsslam.attention.mask import AttentionMask
from gsslam.errors import NativeError
from gsslam.feature_operations import SHAPE
from gsslam.native import Plan

_MASK = "Tensor? key_lengths, float scale, int left, int right, int offset"
_TOKENS = "Tensor query, Tensor key, Tensor value"
_LIBRARY = torch.library.Library("gsslam", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    f"attention({_TOKENS}, {_MASK}) -> (Tensor, Tensor)"
)
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "attention_backward(Tensor grad_output, Tensor grad_log_sum_exp, Tensor output, "
    f"Tensor log_sum_exp, {_TOKENS}, {_MASK}) -> (Tensor, Tensor, Tensor)"
)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: AttentionMask | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Return softmax(scale · query keyᵀ) value (B, H, L, E); the rest as ``attention_with_lse``."""
    return attention_with_lse(query, key, value, mask, scale)[0]


def attention_with_lse(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: AttentionMask | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``attention_reference`` does, by the native kernels; differentiable.

    query (B, H, L, D), key (B, G, S, D), value (B, G, S, E): float32 on the CPU, float16 or
    bfloat16 on a GPU, where sums and the log are float32. Raises NativeError for shapes that do
    not fit together and types without a kernel.
    """
    mask = mask or AttentionMask()
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NativeError("query, key and value must be (batch, heads, tokens, channels)")
    scale = max(query.shape[-1], 1) ** -0.5 if scale is None else scale
    output, log_sum_exp = torch.ops.gsslam.attention(
        query, key, value, mask.key_lengths, scale, *mask.limits
    )
    return output, log_sum_exp


_HALVES = (torch.float16, torch.bfloat16)
_CUDA_STEP = 8  # channels of the CUDA kernels come in eights


@cache
def attention_plan(device: torch.device) -> Plan:
    """Return the kernels of a device, which keep nothing between calls."""
    return Plan("Attention", device)


def check_heads(heads: int, kv_heads: int) -> None:
    """Raise NativeError unless every key head has as many query heads."""
    if kv_heads == 0 or heads % kv_heads:
        raise NativeError(
            f"the {heads} heads of query must be a multiple of the {kv_heads} of key; "
            "repeat or drop heads"
        )


@dataclass(frozen=True)
class _Call:
    """An attention's arguments, as the table names them."""

    plan: Plan
    arguments: dict[str, Any]
    # Batch, heads and queries.
    rows: tuple[int, int, int]
    # Of keys and values, as they came.
    widths: tuple[int, int]

    @staticmethod
    def of(
        tokens: Sequence[torch.Tensor],
        key_lengths: torch.Tensor | None,
        scale: float,
        limits: Sequence[int],
    ) -> _Call:
        """Take query, key and value."""
        plan = attention_plan(tokens[0].device)
        on_cpu = plan.device.type == "cpu"
        if not on_cpu and tokens[0].dtype not in _HALVES:
            raise NativeError(
                f"attention on {plan.device} takes float16 or bfloat16: {tokens[0].dtype}"
            )
        check_heads(tokens[0].shape[1], tokens[1].shape[1])
        query, key, value = (_padded(x, on_cpu) for x in tokens)
        left, right, offset = limits
        arguments = {"key_lengths": key_lengths, "scale": scale}
        arguments |= {"left": left, "right": right, "offset": offset}
        arguments |= {"query": query, "key": key, "value": value}
        batch, heads, queries = query.shape[:3]
        return _Call(
            plan, arguments, (batch, heads, queries), (tokens[0].shape[3], tokens[2].shape[3])
        )

    @property
    def on_cpu(self) -> bool:
        """Whether the kernels are the CPU's."""
        return self.plan.device.type == "cpu"

    @property
    def value_width(self) -> int:
        """Channels of values, as the kernels take them."""
        return int(self.arguments["value"].shape[3])

    def run(self, name: str, **more: torch.Tensor) -> None:
        """Call an operation with more tensors."""
        if not self.on_cpu:
            query, key = self.arguments["query"], self.arguments["key"]
            sizes = (*self.rows[:2], key.shape[1], self.rows[2], *key.shape[2:], self.value_width)
            size = self.plan.call(f"{name}_parts", **dict(zip(SHAPE, sizes, strict=True)))
            more["parts"] = torch.empty(size, device=query.device)
            name = f"{name}_{str(query.dtype).removeprefix('torch.')}"
        self.plan.call(name, **self.arguments, **more)


def _padded(tensor: torch.Tensor, on_cpu: bool) -> torch.Tensor:
    """Return a contiguous tensor whose channels the kernels can take."""
    missing = 0 if on_cpu else -tensor.shape[3] % _CUDA_STEP
    return (torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor).contiguous()


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_lengths: torch.Tensor | None,
    scale: float,
    *limits: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    call = _Call.of((query, key, value), key_lengths, scale, limits)
    output = query.new_empty((*call.rows, call.value_width))
    log_sum_exp = query.new_empty(call.rows, dtype=torch.float32)
    call.run("forward", output=output, log_sum_exp=log_sum_exp)
    return output[..., : call.widths[1]].contiguous(), log_sum_exp


def _attention_backward(
    grad_output: torch.Tensor,
    grad_log_sum_exp: torch.Tensor,
    output: torch.Tensor,
    log_sum_exp: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_lengths: torch.Tensor | None,
    scale: float,
    *limits: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    call = _Call.of((query, key, value), key_lengths, scale, limits)
    grads = {f"grad_{n}": torch.empty_like(call.arguments[n]) for n in ("query", "key", "value")}
    call.run(
        "backward",
        output=_padded(output, call.on_cpu),
        log_sum_exp=log_sum_exp,
        grad_output=_padded(grad_output, call.on_cpu),
        grad_log_sum_exp=grad_log_sum_exp.contiguous(),
        delta=torch.empty_like(log_sum_exp),
        **grads,
    )
    dim, value_dim = call.widths
    return (
        grads["grad_query"][..., :dim].contiguous(),
        grads["grad_key"][..., :dim].contiguous(),
        grads["grad_value"][..., :value_dim].contiguous(),
    )


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("attention", _attention, _device)  # type: ignore[no-untyped-call]
    _LIBRARY.impl(  # type: ignore[no-untyped-call]
        "attention_backward", _attention_backward, _device
    )


def _fake_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    output = query.new_empty((*query.shape[:3], value.shape[3]))
    return output, query.new_empty(query.shape[:3], dtype=torch.float32)


def _fake_attention_backward(
    _grad_output: torch.Tensor,
    _grad_log_sum_exp: torch.Tensor,
    _output: torch.Tensor,
    _log_sum_exp: torch.Tensor,
    *tokens: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = (tensor.new_empty(tensor.shape) for tensor in tokens[:3])
    return query, key, value


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, key_lengths, *ctx.mask = inputs
    ctx.save_for_backward(*output, query, key, value, key_lengths)


def _differentiate(
    ctx: Any, grad_output: torch.Tensor, grad_log_sum_exp: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    grads = torch.ops.gsslam.attention_backward(
        grad_output, grad_log_sum_exp, *ctx.saved_tensors, *ctx.mask
    )
    return (*grads, None, None, None, None, None)


def _save_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    pass


def _refuse(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    raise NativeError("the native attention has no second derivative; use attention_reference")


torch.library.register_fake("gsslam::attention", _fake_attention)
torch.library.register_fake("gsslam::attention_backward", _fake_attention_backward)
torch.library.register_autograd("gsslam::attention", _differentiate, setup_context=_save)
torch.library.register_autograd("gsslam::attention_backward", _refuse, setup_context=_save_nothing)
