"""The native attention as PyTorch operations: differentiable, and known to torch.compile.

``torch.ops.gsslam.attention`` keeps its output and log-sum-exp for the backward pass, which makes
the weights anew from them; neither pass stores a matrix of queries times keys, and both give the
same bytes every time.
"""

from __future__ import annotations

from typing import Any

import torch

from gsslam import _native
from gsslam.attention.mask import AttentionMask
from gsslam.errors import NativeError
from gsslam.native import Kernels

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

    query (B, H, L, D), key (B, G, S, D), value (B, G, S, E), float32 on the CPU. Raises NativeError
    for shapes that do not fit together and types without a kernel.
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


def _inputs(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_lengths: torch.Tensor | None,
) -> tuple[Kernels, tuple[int, ...], tuple[int, int, int], int]:
    """Return the kernels, the shape, the addresses and that of the key lengths, all checked."""
    kernels = Kernels.on(query.device)
    shape = attention_shape(query, key, value)
    batch, heads, kv_heads, queries, keys, dim, value_dim = shape
    addresses = (
        kernels.address(query, "query", (batch, heads, queries, dim)),
        kernels.address(key, "key", (batch, kv_heads, keys, dim)),
        kernels.address(value, "value", (batch, kv_heads, keys, value_dim)),
    )
    lengths = 0
    if key_lengths is not None:
        lengths = kernels.address(key_lengths, "key_lengths", (batch,), torch.int32)
    return kernels, shape, addresses, lengths


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_lengths: torch.Tensor | None,
    scale: float,
    *limits: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    kernels, shape, addresses, lengths = _inputs(query, key, value, key_lengths)
    output = query.new_empty((*query.shape[:3], value.shape[3]))
    log_sum_exp = query.new_empty(query.shape[:3])
    _native.cpu_attention_forward(
        shape,
        (*limits, lengths),
        scale,
        *addresses,
        0,
        0,
        kernels.address(output, "output", tuple(output.shape)),
        kernels.address(log_sum_exp, "log_sum_exp", tuple(log_sum_exp.shape)),
    )
    return output, log_sum_exp


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
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    kernels, shape, addresses, lengths = _inputs(query, key, value, key_lengths)
    grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    rows, values = tuple(query.shape[:3]), (*query.shape[:3], value.shape[3])
    delta = torch.empty_like(log_sum_exp)
    # Held by names until the kernels are done with them.
    grad_output, grad_log_sum_exp = grad_output.contiguous(), grad_log_sum_exp.contiguous()
    _native.cpu_attention_backward(
        shape,
        (*limits, lengths),
        scale,
        *addresses,
        kernels.address(output, "output", values),
        kernels.address(log_sum_exp, "log_sum_exp", rows),
        kernels.address(grad_output, "grad_output", values),
        kernels.address(grad_log_sum_exp, "grad_log_sum_exp", rows),
        delta.data_ptr(),
        grads[0].data_ptr(),
        grads[1].data_ptr(),
        grads[2].data_ptr(),
    )
    return grads


_LIBRARY.impl("attention", _attention, "CPU")  # type: ignore[no-untyped-call]
_LIBRARY.impl("attention_backward", _attention_backward, "CPU")  # type: ignore[no-untyped-call]


def _fake_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    output = query.new_empty((*query.shape[:3], value.shape[3]))
    return output, query.new_empty(query.shape[:3])


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
