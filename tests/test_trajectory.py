from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsslam.errors import DatasetError, OutputError
from gsslam.geometry import exp_se3, matrix_from_quaternion
from gsslam.trajectory import Trajectory, nearest_within

GOOD = "# comment\n1.0 1 2 3 0 0 0 1\n\n2.0 4 5 6 0 0 0.6 0.8\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def random_trajectory(count: int, seed: int = 0) -> Trajectory:
    random = np.random.default_rng(seed)
    poses = np.stack([exp_se3(random.normal(size=6)) for _ in range(count)])
    return Trajectory(1305031102.175304 + np.arange(count) / 30, poses)


def test_read_gives_the_numbers_of_the_file(tmp_path: Path) -> None:
    trajectory = Trajectory.read(write(tmp_path / "t.txt", GOOD))
    np.testing.assert_array_equal(trajectory.timestamps, [1.0, 2.0])
    np.testing.assert_array_equal(trajectory.T_world_camera[0, :3, 3], [1, 2, 3])
    np.testing.assert_array_equal(trajectory.T_world_camera[0, :3, :3], np.eye(3))
    # (0, 0, 0.6, 0.8) turns about z by twice the angle whose cosine is 0.8.
    expected = [[0.28, -0.96, 0], [0.96, 0.28, 0], [0, 0, 1]]
    np.testing.assert_allclose(trajectory.T_world_camera[1, :3, :3], expected, atol=1e-15)
    np.testing.assert_array_equal(trajectory.T_world_camera[:, 3], [[0, 0, 0, 1]] * 2)


def test_write_then_read_keeps_poses(tmp_path: Path) -> None:
    trajectory = random_trajectory(50)
    trajectory.write(tmp_path / "new" / "t.txt")
    again = Trajectory.read(tmp_path / "new" / "t.txt")
    np.testing.assert_allclose(again.timestamps, trajectory.timestamps, atol=1e-6, rtol=0)
    np.testing.assert_allclose(again.T_world_camera, trajectory.T_world_camera, atol=4e-9, rtol=0)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["t.txt"]  # no temporary file left


def test_written_quaternions_are_x_y_z_w(tmp_path: Path) -> None:
    pose = np.eye(4)
    pose[:3, :3] = matrix_from_quaternion(np.array([0.1, 0.2, 0.3, 0.9]))
    Trajectory(np.array([5.0]), pose[None]).write(tmp_path / "t.txt")
    header, line = (tmp_path / "t.txt").read_text().splitlines()
    assert header.startswith("# timestamp tx ty tz qx qy qz qw")
    q = np.array([float(word) for word in line.split()[4:]])
    np.testing.assert_allclose(q, np.array([0.1, 0.2, 0.3, 0.9]) / np.sqrt(0.95), atol=1e-9)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("3.0 nan 0 0 0 0 0 1", "NaN or infinite"),
        ("3.0 0 inf 0 0 0 0 1", "NaN or infinite"),
        ("3.0 0 0 0 0 0 nan 1", "NaN or infinite"),
        ("nan 0 0 0 0 0 0 1", "NaN or infinite"),
        ("3.0 0 0 0 0 0 0 0", "quaternion is zero"),
        ("1.5 0 0 0 0 0 0 1", "earlier"),
        ("3.0 0 0 0 0 0 1", "8 numbers"),
        ("3.0 0 0 0 0 0 0 1 1", "8 numbers"),
        ("3.0 0 zero 0 0 0 0 1", "8 numbers"),
    ],
)
def test_read_names_file_and_line_of_a_bad_pose(tmp_path: Path, line: str, what: str) -> None:
    path = write(tmp_path / "bad.txt", GOOD + line + "\n")
    with pytest.raises(DatasetError, match=rf"bad\.txt, line 5: .*{what}") as error:
        Trajectory.read(path)
    assert "\n" not in str(error.value)


def test_missing_and_binary_files_are_dataset_errors(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot read trajectory"):
        Trajectory.read(tmp_path / "absent.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DatasetError, match="cannot read trajectory"):
        Trajectory.read(tmp_path / "binary")


def test_unwritable_place_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        random_trajectory(1).write(tmp_path / "file" / "t.txt")


def test_empty_trajectory_survives(tmp_path: Path) -> None:
    Trajectory(np.empty(0), np.empty((0, 4, 4))).write(tmp_path / "t.txt")
    again = Trajectory.read(tmp_path / "t.txt")
    assert len(again) == 0
    assert again.T_world_camera.shape == (0, 4, 4)
    assert again.nearest(np.array([1.0]), 0.1) == [None]


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=30),
    st.lists(st.integers(-20, 1020), max_size=30),
    st.integers(1, 50),
)
def test_nearest_within_agrees_with_trying_all(
    times: list[int], queries: list[int], limit: int
) -> None:
    sorted_times = np.array(sorted(times), dtype=np.float64)
    found = nearest_within(np.array(queries, dtype=np.float64), sorted_times, limit)
    for query, index in zip(queries, found, strict=True):
        distances = np.abs(sorted_times - query)
        if distances.min() < limit:
            assert distances[index] == distances.min()
        else:
            assert index == -1
