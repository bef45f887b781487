"""Choice of keyframes, and of those whose images go."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gsslam import geometry
from gsslam.config import KeyframeConfig
from gsslam.keyframes import Keyframe, drop_least_useful, is_heldout, keyframe_is_due


def test_one_in_every_n_is_held_out_and_never_the_first() -> None:
    assert [i for i in range(25) if is_heldout(i, 8)] == [7, 15, 23]
    assert not any(is_heldout(i, 0) for i in range(25))


def moved(translation: float, degrees: float) -> np.ndarray:
    xi = np.array([translation, 0, 0, 0, 0, np.deg2rad(degrees)])
    return geometry.exp_se3(xi)


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
    depth = torch.tensor([[0.0, 1.5, 2.0], [2.5, 0.0, 0.0]])
    assert keyframe_is_due(frames, pose, overlap, depth, KeyframeConfig()) is due
    assert not keyframe_is_due(frames, pose, overlap, torch.zeros(2, 3), KeyframeConfig())


def keyframe(index: int, x: float, yaw: float = 0.0) -> Keyframe:
    """A keyframe whose centre lies at x metres, turned by yaw."""
    T_world_camera = geometry.exp_se3(np.array([0, 0, 0, 0, yaw, 0.0]))
    T_world_camera[0, 3] = x
    image = torch.ones(3, 2, 2, dtype=torch.uint8)
    return Keyframe(index, geometry.inverse(T_world_camera), 1.0, 0.0, image, torch.ones(2, 2))


def kept(keyframes: list[Keyframe]) -> list[int]:
    return [k.index for k in keyframes if k.has_images]


def test_the_older_of_the_two_nearest_views_goes_first() -> None:
    #            first          pair          far  as near, but turned   newest
    views = [(0, 0), (1.0, 0), (1.02, 0), (2.0, 0), (2.01, 0.5), (3, 0), (3.001, 0)]
    keyframes = [keyframe(i, x, yaw) for i, (x, yaw) in enumerate(views)]
    assert drop_least_useful(keyframes, newest=2)
    assert kept(keyframes) == [0, 2, 3, 4, 5, 6]
    assert not keyframes[1].has_images
    assert keyframes[1].depth.numel() == 0
    # Poses stay, for the frames that hang on them.
    assert keyframes[1].T_camera_world[0, 3] == -1
    assert drop_least_useful(keyframes, newest=2)
    assert kept(keyframes) == [0, 2, 4, 5, 6]


def test_the_first_and_the_newest_stay() -> None:
    keyframes = [keyframe(i, 0.0) for i in range(5)]
    dropped = [drop_least_useful(keyframes, newest=2) for _ in range(4)]
    assert [len(images) for images in dropped] == [1, 1, 0, 0]
    assert dropped[0][0][0].shape == (3, 2, 2)
    assert kept(keyframes) == [0, 3, 4]


def test_a_path_there_and_back_keeps_views_of_all_of_it() -> None:
    path = [*np.linspace(0, 2, 21), *np.linspace(2, 0, 21)]
    keyframes = [keyframe(i, x) for i, x in enumerate(path)]
    while len(kept(keyframes)) > 12:
        assert drop_least_useful(keyframes, newest=2)
    places = np.sort([path[i] for i in kept(keyframes)])
    assert np.diff(places).max() < 0.5


def test_images_move_into_those_that_were_dropped() -> None:
    old, new = keyframe(0, 0.0), keyframe(1, 1.0)
    new.rgb.fill_(7)
    new.depth.fill_(2.5)
    images = old.drop_images()
    new.move_images(images)
    assert new.rgb is images[0]
    assert new.rgb.unique().tolist() == [7]
    assert new.depth.unique().tolist() == [2.5]
