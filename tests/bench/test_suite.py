"""Suites: what their files say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsslam.bench.suite import load_suite, suite_names
from gsslam.datasets import catalogue
from gsslam.errors import ConfigError
from gsslam.presets import load_preset

TINY = """
title: Tiny
sequences:
  room:
    dataset: synthetic/room
    resolution: 48x36
    max_frames: 9
    config: {mapping: {iterations: 4, first_iterations: 10}}
  also noisy: {dataset: synthetic/room_noisy, resolution: 48x36, max_frames: 9, preset: fast}
peers:
  - {name: Somebody, source: a paper, ate_rmse_cm: {room: 1.25, also noisy: 2.5}}
  - {name: Another, source: a re-run, ate_rmse_cm: {mean: 3.0}, psnr_db: {room: 20.5}}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.mark.parametrize("name", suite_names())
def test_suites_that_come_with_gsslam_can_be_run(name: str, tmp_path: Path) -> None:
    suite = load_suite(name)
    families = catalogue.families()
    for sequence in suite.sequences.values():
        if sequence.dataset.partition("/")[0] in families:
            catalogue.find(sequence.dataset)
    jobs = suite.jobs(tmp_path, 2, "cpu")
    assert len({job.folder for job in jobs}) == 2 * len(suite.sequences)


def test_jobs_say_how_each_sequence_is_run(tiny: Path, tmp_path: Path) -> None:
    suite = load_suite(str(tiny))
    jobs = suite.jobs(tmp_path, 2, "cpu", Path("/data"))
    assert [(job.name, job.seed) for job in jobs] == [
        ("room", 0),
        ("also noisy", 0),
        ("room", 1),
        ("also noisy", 1),
    ]
    first = jobs[0]
    assert first.config.mapping.iterations == 4
    assert first.config.mapping.depth_weight == load_preset("synthetic").mapping.depth_weight
    assert (first.source.resolution, first.source.max_frames) == ((48, 36), 9)
    assert jobs[1].config == load_preset("fast")
    assert jobs[2].config.seed == jobs[2].source.seed == 1


def test_other_settings_have_other_folders(tiny: Path, tmp_path: Path) -> None:
    suite = load_suite(str(tiny))

    def folders(suite: object, device: str = "cpu") -> list[Path]:
        return [job.folder for job in suite.jobs(tmp_path, 1, device)]  # type: ignore[attr-defined]

    usual = folders(suite)
    assert folders(load_suite(str(tiny))) == usual
    for other in (
        suite.with_settings({"max_frames": 8}),
        suite.with_settings({"preset": "quality"}),
        suite.with_settings({"resolution": "64x48"}),
    ):
        assert not set(folders(other)) & set(usual)
    assert not set(folders(suite, "cuda")) & set(usual)


def test_peers_are_left_out_where_other_frames_are_run(tiny: Path) -> None:
    suite = load_suite(str(tiny))
    assert suite.with_settings({"preset": "fast"}).peers == suite.peers != ()
    assert suite.with_settings({"max_frames": 5}).peers == ()


def test_folders_of_sequences_lie_in_that_of_the_data() -> None:
    sequence = load_suite("real").sequences["fr1/xyz"]
    assert sequence.source(Path("/data"), 0).path == Path("/data/tum_fr1_xyz")
    assert sequence.source(None, 0).path is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: nothing\nsequences: {}", "names no sequences"),
        ("title: [", "is not valid YAML"),
        ("sequences: {a: {dataset: b}}", "title: Field required"),
        ("title: t\nsequences: {a: {dataset: b, stride: 0}}", "stride"),
        ("title: t\nsequences: {a: {dataset: b, speed: 3}}", "speed"),
        (
            "title: t\nsequences: {a: {dataset: b}}\n"
            "peers: [{name: P, source: s, psnr_db: {c: 1}}]",
            "P has a figure of 'c'",
        ),
        ("title: !!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_suites_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_suite(str(path))


def test_suites_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no suite 'tmu': choose one of real, replica, synthetic"):
        load_suite("tmu")
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml"):
        load_suite(str(tmp_path / "none.yaml"))


def test_wrong_configurations_are_found_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    text = "title: t\nsequences: {a: {dataset: synthetic/room, config: {mapping: {steps: 3}}}}"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"no configuration value mapping\.steps"):
        load_suite(str(path)).jobs(tmp_path, 1, "cpu")
