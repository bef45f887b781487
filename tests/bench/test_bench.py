"""Batches of runs: what is run, what is not run again, and what comes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gsslam
from gsslam.bench.batch import run_batch
from gsslam.bench.job import Job, Outcome, finished, run_job
from gsslam.bench.results import tables
from gsslam.bench.suite import load_suite
from gsslam.cli import main
from tests.bench.test_suite import TINY

NUMBERS = ("ate_rmse_cm", "psnr_db", "psnr_exposure_db", "ssim", "spheres", "keyframes")


@pytest.fixture(scope="module")
def suite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def bench(suite_file: Path) -> Path:
    """The results of the suite's two sequences with one seed, two at a time."""
    out = suite_file.parent / "out"
    command = f"bench --suite {suite_file} --seeds 1 --jobs 2 --device cpu --out {out}"
    assert main(command.split()) == 0
    return out


def jobs_of(suite_file: Path, out: Path, seeds: int = 1) -> list[Job]:
    return load_suite(str(suite_file)).jobs(out, seeds, "cpu")


def numbers(outcome: Outcome) -> dict[str, float]:
    return {name: outcome.metrics[name] for name in NUMBERS}


def test_tables_and_files(bench: Path) -> None:
    text = (bench / "results.md").read_text()
    for part in (
        "# Tiny",
        "1.25 | 2.5 | 1.88 | a paper |",
        "| Another | - | - | 3 | a re-run |",
        "2 run(s) at a time",
        "room 48x36",
    ):
        assert part in text, part
    assert "Runs without results" not in text
    values = json.loads((bench / "results.json").read_text())
    assert [run["sequence"] for run in values["runs"]] == ["room", "also noisy"]
    assert all(run["metrics"]["frames"] == 9 for run in values["runs"])
    assert values["peers"][0]["source"] == "a paper"


def test_finished_runs_are_not_run_again(suite_file: Path, bench: Path) -> None:
    jobs = jobs_of(suite_file, bench)
    before = [job.run.metrics.stat().st_mtime_ns for job in jobs]
    seen: list[Outcome] = []
    batch = run_batch(jobs, 1, seen.append)
    assert not batch.interrupted
    assert seen == list(batch.outcomes) == [finished(job) for job in jobs]
    assert [job.run.metrics.stat().st_mtime_ns for job in jobs] == before


def test_a_run_that_was_not_scored_is_only_scored(suite_file: Path, bench: Path) -> None:
    job = jobs_of(suite_file, bench)[0]
    metrics = job.run.read_metrics()
    trajectory = job.run.trajectory.stat().st_mtime_ns
    unscored = {key: value for key, value in metrics.items() if not key.startswith("psnr")}
    job.run.metrics.write_text(json.dumps(unscored))
    assert finished(job) is None
    outcome = run_job(job)
    assert outcome.metrics["psnr_db"] == pytest.approx(metrics["psnr_db"], abs=0.01)
    assert job.run.trajectory.stat().st_mtime_ns == trajectory
    job.run.metrics.write_text(json.dumps(metrics))


def test_failed_runs_are_rows_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "failing.yaml"
    suite.write_text(
        "title: Failing\nsequences:\n  gone: {dataset: tum/fr1_desk, folder: none}\n"
        "  other: {dataset: nowhere/none}\n"
    )
    command = f"bench --suite {suite} --seeds 1 --jobs 2 --device cpu --out {tmp_path / 'out'}"
    assert main([*command.split(), "--data", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "/2  gone, seed 0: tum/fr1_desk: the folder" in shown.err
    text = (tmp_path / "out/results.md").read_text()
    assert "## Runs without results" in text
    assert "| other | 0 | unknown dataset 'nowhere/none'" in text


def test_a_killed_run_says_so(
    suite_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs_of(suite_file, tmp_path)[0]
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    monkeypatch.setattr("gsslam.bench.job._command", lambda job: killed)
    assert run_job(job).problem == "killed by SIGKILL"


@pytest.mark.slow
def test_ctrl_c_saves_what_there_is_and_the_next_call_goes_on(
    suite_file: Path, bench: Path, tmp_path: Path
) -> None:
    text = TINY.replace("max_frames: 9", "max_frames: 200", 1)
    suite = tmp_path / "long.yaml"
    suite.write_text(text)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "gsslam", "bench", "--suite", str(suite), "--seeds", "1"]
    root = str(Path(gsslam.__file__).parents[1])
    with subprocess.Popen(
        [*command, "--device", "cpu", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as process:
        job = jobs_of(suite, out)[0]
        end = time.monotonic() + 60
        while time.monotonic() < end and not job.run.log.exists():
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted" in (out / "results.md").read_text()
    assert finished(job) is None
    assert job.run.checkpoint.exists()
    outcome = run_job(job)
    assert (outcome.problem, outcome.metrics["frames"]) == ("", 200)
    assert "resumed at frame" in job.run.log.read_text()


@pytest.mark.slow
def test_the_same_numbers_through_ray(suite_file: Path, bench: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs ray")
    here = [
        numbers(outcome) for outcome in run_batch(jobs_of(suite_file, bench), 1, print).outcomes
    ]
    jobs = jobs_of(suite_file, tmp_path / "ray")
    batch = run_batch(jobs, 2, lambda outcome: None, ray="local")
    assert [outcome.problem for outcome in batch.outcomes] == ["", ""]
    assert [numbers(outcome) for outcome in batch.outcomes] == here
    for job, other in zip(jobs, jobs_of(suite_file, bench), strict=True):
        assert job.run.trajectory.read_bytes() == other.run.trajectory.read_bytes()


def test_means_are_over_the_seeds(suite_file: Path) -> None:
    suite = load_suite(str(suite_file))
    outcomes = [
        Outcome("room", seed, {"frames": 9, "ate_rmse_cm": ate, "psnr_db": 20.0})
        for seed, ate in enumerate((1.0, 2.0, 3.0))
    ]
    own, ate, psnr = tables(suite, outcomes, is_full=True)
    assert own.rows[0][:4] == ("room (3)", "9", "-", "2.00 ± 1.00")
    assert ate.rows[0] == ("gsslam", "2.00 ± 1.00", "-", "-", "these runs")
    assert psnr.rows[1] == ("Another", "20.5", "-", "-", "a re-run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bench --suite tmu", "no suite 'tmu'"),
        ("bench --suite synthetic --seeds 0", "--seeds 0 must be at least 1"),
        ("bench --suite synthetic --jobs 0", "--jobs 0 must be at least 1"),
        ("bench --suite synthetic --max-frames 0", "--max-frames 0 must be at least 1"),
        ("bench --suite synthetic --resolution big", "resolution 'big' must be"),
        ("bench --suite synthetic --preset fats", "no preset 'fats'"),
    ],
)
def test_known_errors(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["bench", "--suite", "synthetic", "--ray", "local"]) == 2
    assert "pip install 'gsslam[ray]'" in capsys.readouterr().err
