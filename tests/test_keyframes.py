"""Which frames are held out."""

import numpy as np
import pytest

from gsslam.config import KeyframeConfig
from gsslam.geometry import exp_se3
from gsslam.keyframes import is_heldout, keyframe_is_due


def test_one_in_every_n_is_held_out_and_never_the_first() -> None:
    assert [i for i in range(25) if is_heldout(i, 8)] == [7, 15, 23]
    assert not any(is_heldout(i, 0) for i in range(25))


def moved(translation: float, degrees: float) -> np.ndarray:
    xi = np.array([translation, 0, 0, 0, 0, np.deg2rad(degrees)])
    return exp_se3(xi)


@pytest.mark.parametrize(
    ("frames", "pose", "overlap", "due"),
    [
        (1, moved(9.0, 90.0), 0.0, False),  # too soon, whatever happened
        (2, moved(0.0, 0.0), 1.0, False),
        (4, moved(0.0, 0.0), 1.0, True),
        (2, moved(0.15, 0.0), 1.0, False),
        (2, moved(0.17, 0.0), 1.0, True),
        (2, moved(0.0, 5.9), 1.0, False),
        (2, moved(0.0, 6.1), 1.0, True),
        (2, moved(0.0, 0.0), 0.69, True),
    ],
)
def test_a_keyframe_is_due_by_time_motion_or_overlap(
    frames: int, pose: np.ndarray, overlap: float, due: bool
) -> None:
    assert keyframe_is_due(frames, pose, overlap, 2.0, KeyframeConfig()) is due
