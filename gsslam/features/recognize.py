"""Recognising where an image was taken."""

from __future__ import annotations

import torch

from gsslam.features.places import KeyframeIndex, RankedKeyframe
from gsslam.features.teacher import Teacher


def recognize(
    image: torch.Tensor, index: KeyframeIndex, teacher: Teacher, count: int = 5
) -> list[RankedKeyframe]:
    """Return the keyframes that look most like an image (3, H, W), 0 to 1, best first.

    ``teacher`` must be the encoder that the index's features came from.
    """
    return index.rank(teacher.encode(image), count)
