from __future__ import annotations

import numpy as np
import pytest

from gsslam.diagnosis.files import check_names, check_poses, check_readable, check_timestamps
from gsslam.diagnosis.finding import Finding

PADDED = ["0001.png", "0002.png", "0010.png"]


def test_good_names_and_times_give_nothing() -> None:
    assert check_names(PADDED, PADDED) is None
    assert check_names(["rgb_1.jpg", "rgb_2.jpg"], ["depth_1.png", "depth_2.png"]) is None
    times = ["1305031102.175304.png", "1305031102.211214.png"]
    assert check_names(times, ["1305031102.160407.png", "1305031102.226738.png"]) is None
    assert check_timestamps([5.0]) is None
    assert check_timestamps([]) is None
    assert check_timestamps([0.0, 0.03, 0.1, 0.13]) is None
    assert check_poses([np.eye(4)]) is None
    assert check_readable({}, 20) is None


@pytest.mark.parametrize(
    ("colour", "depth", "check", "words"),
    [
        (["a.png", "b.png"], ["a.png", "b.png"], "names", "names such as a.png have no number"),
        (PADDED, ["0001.png", "0003.png", "0010.png"], "names", "pairs 0002.png with 0003.png"),
        (PADDED, ["0001.png", "x.png", "0010.png"], "names", "pairs 0002.png with x.png"),
        (
            ["1.9.png", "1.10.png"],
            ["1.9.png", "1.10.png"],
            "timestamps",
            "do not increase (1.9 comes before 1.10)",
        ),
    ],
)
def test_bad_names(colour: list[str], depth: list[str], check: str, words: str) -> None:
    finding = check_names(colour, depth)
    assert isinstance(finding, Finding)
    assert (finding.check, finding.is_problem) == (check, True)
    assert words in finding.what


def test_unpadded_names_are_worth_knowing_and_no_problem() -> None:
    names = [f"frame{i}.png" for i in (1, 2, 10)]
    finding = check_names(names, names)
    assert finding is not None
    assert not finding.is_problem
    assert "(frame1.png ... frame10.png)" in finding.what


def test_mirrored_poses() -> None:
    finding = check_poses([np.eye(4), np.diag([1.0, 1.0, -1.0, 1.0])])
    assert finding is not None
    assert "pose 1 is no rigid motion" in finding.what
