"""Keyframes found again by their images: on a real sequence, and the index itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gsslam import open_dataset
from gsslam.camera import Camera
from gsslam.errors import NativeError
from gsslam.features import KeyframeIndex, open_teacher, recognize
from gsslam.frame import Frame


def as_image(frame: Frame) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(frame.rgb)).permute(2, 0, 1) / 255


def overlap(frame: Frame, other: Frame, camera: Camera) -> float:
    """Share of a frame's measured pixels that another one sees, by the true poses."""
    v, u = np.nonzero(frame.depth[::4, ::4] > 0)
    u, v = 4 * u, 4 * v
    z = frame.depth[v, u]
    x, y = (u + 0.5 - camera.cx) / camera.fx * z, (v + 0.5 - camera.cy) / camera.fy * z
    assert frame.T_world_camera is not None
    assert other.T_world_camera is not None
    T = np.linalg.inv(other.T_world_camera) @ frame.T_world_camera
    p = np.stack([x, y, z], 1) @ T[:3, :3].T + T[:3, 3]
    column = p[:, 0] / p[:, 2] * camera.fx + camera.cx
    row = p[:, 1] / p[:, 2] * camera.fy + camera.cy
    inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height)
    return float((inside & (p[:, 2] > 0)).mean())


def test_held_out_frames_of_a_real_sequence_find_their_place(data_root: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    path = data_root / "seven_scenes_redkitchen"
    dataset = open_dataset("7scenes/redkitchen", path, resolution=(160, 120), stride=12)
    frames, teacher = list(dataset), open_teacher("efficientnet-lite0")
    keyframes, held_out = frames[::2], frames[1::2]
    index = KeyframeIndex(112, pages=64)
    for keyframe in keyframes:
        index.add(keyframe.index, teacher.encode(as_image(keyframe)))
    by_index = {keyframe.index: keyframe for keyframe in keyframes}
    found = [
        overlap(frame, by_index[best.name], dataset.camera)
        for frame in held_out
        for best in recognize(as_image(frame), index, teacher, 1)
    ]
    assert len(found) == len(held_out) >= 10
    assert np.mean([share >= 0.5 for share in found]) >= 0.9


def features(seed: int) -> torch.Tensor:
    return torch.rand(16, 5, 7, generator=torch.Generator().manual_seed(seed))


def test_the_same_image_is_first_with_a_score_of_one() -> None:
    index = KeyframeIndex(16, pages=8)
    assert index.rank(features(0)) == []
    for name in range(6):
        index.add(name, features(name))
    ranked = index.rank(features(4), 3)
    assert [len(ranked), ranked[0].name] == [3, 4]
    assert ranked[0].score == pytest.approx(1, abs=0.02)
    assert ranked[1].score < 0.95
    assert ranked == index.rank(features(4), 3)


def test_keyframes_come_and_go_without_changing_the_others() -> None:
    index = KeyframeIndex(16, pages=3)
    for name in (10, 11, 12):
        index.add(name, features(name))
    before = {ranked.name: ranked.score for ranked in index.rank(features(1))}
    with pytest.raises(NativeError, match="full"):
        index.add(13, features(13))
    index.remove(11)
    index.add(13, features(13))
    assert index.names == (10, 12, 13)
    after = {ranked.name: ranked.score for ranked in index.rank(features(1))}
    assert after[10] == before[10]
    assert after[12] == before[12]
    with pytest.raises(NativeError, match="already"):
        index.add(13, features(13))
    with pytest.raises(NativeError, match="features must be"):
        index.rank(torch.zeros(15, 5, 7))
