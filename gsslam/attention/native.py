"""The native attention as PyTorch operations: differentiable, and known to torch.compile.

``torch.ops.gsslam.attention`` keeps its output and log-sum-exp for the backward pass, which makes
the weights anew from them; neither pass stores a matrix of queries times keys, and both give the
same bytes every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gsslam import _native
from gsslam.attention.mask import AttentionMask
from gsslam.errors import NativeError
from gsslam.native import Kernels

_functions: Any = _native  # a build without CUDA does not have those of CUDA
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


def attention_shape(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[int, int, int, int, int, int, int]:
    """Return batch, heads, key heads, queries, keys, channels of keys and of values."""
    batch, heads, queries, dim = query.shape
    kv_heads, keys = key.shape[1:3]
    if kv_heads == 0 or heads % kv_heads:
        raise NativeError(
            f"the {heads} heads of query must be a multiple of the {kv_heads} of key; "
            "repeat or drop heads"
        )
    return batch, heads, kv_heads, queries, keys, dim, value.shape[3]


_HALVES = (torch.float16, torch.bfloat16)
_CUDA_STEP = 8  # channels of the CUDA kernels come in eights


@dataclass(frozen=True)
class _Call:
    """An attention's checked arguments, as the native functions take them."""

    kernels: Kernels
    tensors: tuple[torch.Tensor, ...]  # held until the kernels are done with them
    arguments: tuple[Any, ...]
    rows: tuple[int, int, int]
    widths: tuple[int, int]  # of keys and values, as they came

    @staticmethod
    def of(
        tokens: Sequence[torch.Tensor],
        key_lengths: torch.Tensor | None,
        scale: float,
        limits: Sequence[int],
    ) -> _Call:
        """Check query, key and value."""
        kernels = Kernels.on(tokens[0].device)
        on_cpu = kernels.device.type == "cpu"
        dtype = torch.float32 if on_cpu else tokens[0].dtype
        if not on_cpu and dtype not in _HALVES:
            raise NativeError(f"attention on {kernels.device} takes float16 or bfloat16: {dtype}")
        widths = tokens[0].shape[3], tokens[2].shape[3]
        query, key, value = (_padded(x, on_cpu) for x in tokens)
        shape = attention_shape(query, key, value)
        batch, heads, kv_heads, queries, keys, dim, value_dim = shape
        lengths = 0
        if key_lengths is not None:
            lengths = kernels.address(key_lengths, "key_lengths", (batch,), torch.int32)
        arguments = (
            shape,
            (*limits, lengths),
            scale,
            *(() if on_cpu else (dtype == torch.bfloat16,)),
            kernels.address(query, "query", (batch, heads, queries, dim), dtype),
            kernels.address(key, "key", (batch, kv_heads, keys, dim), dtype),
            kernels.address(value, "value", (batch, kv_heads, keys, value_dim), dtype),
        )
        rows = (batch, heads, queries)
        return _Call(kernels, (query, key, value), arguments, rows, widths)

    @property
    def on_cpu(self) -> bool:
        """Whether the kernels are the CPU's."""
        return self.kernels.device.type == "cpu"

    def where(self) -> tuple[int, ...]:
        """Return the last arguments of a CUDA call."""
        return (self.kernels.device.index, *self.kernels.stream())


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
    output = query.new_empty((*call.rows, call.tensors[2].shape[3]))
    log_sum_exp = query.new_empty(call.rows, dtype=torch.float32)
    results = (output.data_ptr(), log_sum_exp.data_ptr())
    if call.on_cpu:
        _functions.cpu_attention_forward(*call.arguments, 0, 0, *results)
        return output, log_sum_exp
    size = _functions.cuda_attention_forward_parts(call.arguments[0], call.kernels.device.index)
    parts = log_sum_exp.new_empty(size)
    _functions.cuda_attention_forward(*call.arguments, *results, parts.data_ptr(), *call.where())
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
    grads = tuple(torch.empty_like(tensor) for tensor in call.tensors)
    delta = torch.empty_like(log_sum_exp)
    output, grad_output = _padded(output, call.on_cpu), _padded(grad_output, call.on_cpu)
    grad_log_sum_exp = grad_log_sum_exp.contiguous()
    address, values = call.kernels.address, (*call.rows, call.tensors[2].shape[3])
    arguments = (
        *call.arguments,
        address(output, "output", values, output.dtype),
        address(log_sum_exp, "log_sum_exp", call.rows),
        address(grad_output, "grad_output", values, output.dtype),
        address(grad_log_sum_exp, "grad_log_sum_exp", call.rows),
        delta.data_ptr(),
        *(grad.data_ptr() for grad in grads),
    )
    if call.on_cpu:
        _functions.cpu_attention_backward(*arguments)
    else:
        size = _functions.cuda_attention_backward_parts(
            call.arguments[0], call.kernels.device.index
        )
        parts = delta.new_empty(size)
        _functions.cuda_attention_backward(*arguments, parts.data_ptr(), *call.where())
    dim, value_dim = call.widths
    grad_query, grad_key, grad_value = grads
    return (
        grad_query[..., :dim].contiguous(),
        grad_key[..., :dim].contiguous(),
        grad_value[..., :value_dim].contiguous(),
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
