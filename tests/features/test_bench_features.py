"""What the bench of features counts as the right keyframe."""

from __future__ import annotations

import numpy as np
import pytest

from gsslam import geometry
from gsslam.features.files import read_features
from gsslam.features.query import poses_of
from gsslam.run_folder import RunFolder
from scripts.bench_features import cosines, overlap, recognized
from tests.features.small_run import SOURCE, teacher


def test_a_frame_overlaps_itself_and_less_what_is_turned_away() -> None:
    frame = SOURCE.open()[0]
    assert overlap(frame, frame, np.eye(4)) == pytest.approx(1, abs=0.01)
    turned = geometry.exp_se3(np.array([0, 0, 0, 0, 0.4, 0]))
    assert 0.1 < overlap(frame, frame, turned) < 0.8
    away = geometry.exp_se3(np.array([0, 0, 0, 0, 3.0, 0]))
    assert overlap(frame, frame, away) == 0


def test_measures_a_run(whole: RunFolder) -> None:
    features, poses, dataset = read_features(whole, teacher()), poses_of(whole), SOURCE.open()
    exact, quantized = cosines(features, dataset, poses, [7, 15], stride=3)
    assert exact > 0.7
    assert abs(exact - quantized) < 0.02
    assert min(recognized(features, dataset, poses, [7, 15])) > 0.5
