"""A run's features come back from its folder, and answer questions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from gsslam import ConfigError, DatasetError, Slam
from gsslam.cli import main
from gsslam.export.ply import read_ply
from gsslam.features.files import read_features
from gsslam.features.query import heat_colours, poses_of, query_pixel
from gsslam.run_folder import RunFolder
from tests.features.small_run import LEARNING, SOURCE, start, teacher


@pytest.fixture
def copied(tmp_path: Path, whole: RunFolder) -> RunFolder:
    """A copy of the run, to be changed."""
    shutil.copytree(whole.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_what_is_read_is_what_was_learned(whole: RunFolder) -> None:
    read = read_features(whole, teacher())
    dataset = SOURCE.open()
    with Slam(LEARNING, dataset.camera, teacher=teacher()) as slam:
        for frame in dataset:
            slam.track(frame)
        poses = slam.finish().T_world_camera
        learned = slam.features
        assert torch.equal(read.map.live_queries, learned.map.live_queries)
        assert read.tokens.keys() == learned.tokens.keys()
        for index, tokens in read.tokens.items():
            assert torch.equal(tokens, learned.tokens[index])
        feature = learned.feature_at(poses[3], (40, 30))
        torch.testing.assert_close(read.feature_at(poses[3], (40, 30)), feature)
        heat = read.heat(feature, poses[9])
        torch.testing.assert_close(heat, learned.heat(feature, poses[9]))
        assert heat.shape == (72, 96)
    assert poses_of(whole).keys() == set(range(18))


def test_a_view_is_most_alike_where_it_was_asked(whole: RunFolder) -> None:
    features, pose = read_features(whole), poses_of(whole)[4]
    feature = features.feature_at(pose, (30, 50))
    heat = features.heat(feature, pose)
    assert heat[50, 30] > 0.9
    assert heat.abs().max() <= 1 + 1e-5
    assert heat.mean() < 0.6
    scores = features.scores(feature)
    assert scores.shape == (features.map.count,)
    untaught = (features.map.live_queries == 0).all(0)
    assert (scores[untaught] == 0).all()


def test_keyframes_recognise_themselves_first(whole: RunFolder) -> None:
    features, dataset = read_features(whole, teacher()), SOURCE.open()
    for index in features.tokens:
        rgb = torch.from_numpy(np.ascontiguousarray(dataset[index].rgb)).permute(2, 0, 1) / 255
        assert features.recognize(rgb, 1)[0].name == index


def test_the_command_line_writes_pictures_and_spheres(
    tmp_path: Path, whole: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answer"
    arguments = [str(whole.path), "--frame", "7", "--pixel", "30,50", "--views", "3"]
    assert main(["query", *arguments, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "frame 7: likeness up to" in text
    assert cv2.imread(str(out / "overview.png")).shape == (2 * 72, 3 * 96, 3)
    pictures = sorted(out.glob("frame-*.png"))
    assert [path.stem for path in pictures] == ["frame-000000", "frame-000007"] + [
        f"frame-{i:06d}" for i in (8, 17)
    ]
    for path in pictures:
        assert cv2.imread(str(path)).shape == (72, 96, 3)
    spheres, original = read_ply(out / "likeness.ply"), read_ply(whole.map)
    assert np.array_equal(spheres.xyz, original.xyz)
    assert not np.array_equal(spheres.rgb, original.rgb)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frame", "99", "--pixel", "1,1"], "no pose of frame 99: its frames are 0 to 17"),
        (["--frame", "1", "--pixel", "96,1"], "pixel 96,1 is outside of the image"),
        (["--frame", "1", "--pixel", "1"], "--pixel '1' must be column,row"),
        (["--frame", "1"], "give --frame and --pixel, or --crop"),
        (["--pixel", "1,1"], "give --frame and --pixel, or --crop"),
        ([], "give --frame and --pixel, or --crop"),
        (["--frame", "1", "--pixel", "1,1", "--crop", "x.png"], "give --frame and --pixel, or"),
        (["--crop", "x.png"], "cannot read a picture from x.png"),
        (["--frame", "1", "--pixel", "1,1", "--views", "0"], "must be at least 1"),
    ],
)
def test_bad_questions_are_one_line(
    whole: RunFolder, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["query", str(whole.path), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_run_without_features_says_so(copied: RunFolder, tmp_path: Path) -> None:
    copied.features.unlink()
    with pytest.raises(ConfigError, match="has learned no features: run it again with --features"):
        query_pixel(copied.path, 1, (1, 1))
    with pytest.raises(DatasetError, match="not the folder of a run"):
        query_pixel(tmp_path / "nothing", 1, (1, 1))


def test_a_run_is_evaluated_again_without_its_encoder(copied: RunFolder) -> None:
    before = copied.read_metrics()
    assert main(["eval", str(copied.path), "--device", "cpu"]) == 0
    assert copied.read_metrics()["psnr_db"] == pytest.approx(before["psnr_db"], abs=1e-3)
    assert copied.features.exists()


def test_features_of_another_map_are_refused(copied: RunFolder, tmp_path: Path) -> None:
    other = start(tmp_path / "other", LEARNING.__class__(seed=0, features=LEARNING.features))
    shutil.copy(other.features, copied.features)
    with pytest.raises(DatasetError, match="belongs to another map"):
        read_features(copied)


def test_damaged_files_are_refused(copied: RunFolder) -> None:
    whole = copied.features.read_bytes()
    copied.features.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match="cannot read learned features"):
        read_features(copied)
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"queries": torch.zeros(8, 3)}, copied.features)
    with pytest.raises(DatasetError, match="holds no learned features of format"):
        read_features(copied)
    metadata = {"gsslam": json.dumps({"format": "gsslam-features-1"})}
    safetensors.save_file({"queries": torch.zeros(8, 3)}, copied.features, metadata)
    with pytest.raises(DatasetError, match="does not hold what it should"):
        read_features(copied)


def test_a_picture_is_looked_for_with_the_encoder(whole: RunFolder) -> None:
    features, dataset = read_features(whole, teacher()), SOURCE.open()
    rgb = torch.from_numpy(np.ascontiguousarray(dataset[4].rgb)).permute(2, 0, 1) / 255
    crop = rgb[:, 24:48, 24:56]
    heat = features.heat(features.feature_of(crop), poses_of(whole)[4])
    assert heat[28:44, 28:52].mean() > heat.mean()


def test_what_is_not_alike_stays_a_picture() -> None:
    picture = np.full((2, 2, 3), 0.4, dtype=np.float32)
    heat = np.array([[-1, 0], [0.1, 1]], dtype=np.float32)
    colours = heat_colours(picture, heat)
    np.testing.assert_allclose(colours[heat < 0.2], 0.4, atol=1e-6)
    assert colours[1, 1, 0] > colours[1, 1, 2]
