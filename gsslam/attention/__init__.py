"""Exact attention without a score matrix: forward, deterministic backward, paged tokens."""

from gsslam.attention.mask import AttentionMask
from gsslam.attention.native import attention, attention_with_lse
from gsslam.attention.paged import PagedTokens
from gsslam.attention.reference import attention_reference

__all__ = [
    "AttentionMask",
    "PagedTokens",
    "attention",
    "attention_reference",
    "attention_with_lse",
]
