"""Attention as plain PyTorch: the specification of the native kernels, differentiable by autograd.

Vaswani et al., "Attention is all you need" (2017), equation 1; heads share keys and values as in
Ainslie et al., "GQA" (2023).
"""

from __future__ import annotations

import torch

from gsslam.attention.mask import AttentionMask


def attention_reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: AttentionMask | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(scale · query keyᵀ) value and the log of the softmax's denominators.

    query (B, H, L, D), key (B, G, S, D), value (B, G, S, E), H a multiple of G: query head h reads
    head h // (H / G). ``scale`` is 1/√D where None. Returns (B, H, L, E) and (B, H, L). A query
    that sees no key gets zeros, and -inf. All in the dtype of the arguments: float64 to be exact.
    """
    mask = mask or AttentionMask()
    batch, heads, queries, dim = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = (dim**-0.5 if scale is None else scale) * query @ key.mT
    seen = mask.visible(batch, queries, keys, query.device)
    scores = scores.masked_fill(~seen, -torch.inf)
    some = seen.any(-1, keepdim=True)
    # A softmax over nothing would be NaN, in its gradient too: such rows get scores of 0 first.
    weights = scores.masked_fill(~some, 0).softmax(-1) * some
    log_sum_exp = scores.masked_fill(~some, 0).logsumexp(-1, keepdim=True)
    return weights @ value, log_sum_exp.masked_fill(~some, -torch.inf)[..., 0]
