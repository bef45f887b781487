"""One run of many: in a process of its own, gone on with where an earlier one stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gsslam
from gsslam.config import SlamConfig
from gsslam.errors import GsslamError
from gsslam.files import atomic_path
from gsslam.presets import config_to_yaml
from gsslam.run_folder import RunFolder
from gsslam.source import Source

# What is brought home from another computer, the file that says that a run is finished last.
_FILES = ("config", "trajectory", "frames", "compact_map", "log", "metrics")
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Job:
    """A run and where its results go."""

    # Of the sequence, as in the suite.
    name: str
    seed: int
    config: SlamConfig
    source: Source
    # "auto", "cpu" or "cuda".
    device: str
    folder: Path

    @property
    def run(self) -> RunFolder:
        """The run folder."""
        return RunFolder(self.folder)


@dataclass(frozen=True)
class Outcome:
    """What came of a job: its metrics, or why there are none."""

    name: str
    seed: int
    metrics: dict[str, Any] = field(default_factory=dict)
    # Empty for a finished run.
    problem: str = ""
    # By the name of the attribute of RunFolder; only where another process keeps the folder.
    files: dict[str, bytes] = field(default_factory=dict, repr=False)


class Processes:
    """The processes of the runs that are going on, which can be asked to stop."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Ask all of them, as Ctrl-C does, to finish their frame and save what there is."""
        with self._lock:
            self.stopping = True
            for process in self._running:
                process.send_signal(signal.SIGINT)

    def run(self, command: list[str]) -> tuple[int, str]:
        """Return a command's exit status and what it wrote to stderr."""
        # A session of its own: Ctrl-C comes by way of ``stop``, once.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
            if self.stopping:
                process.send_signal(signal.SIGINT)
        try:
            errors = process.communicate()[1]
            return process.returncode, errors
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        finally:
            with self._lock:
                self._running.discard(process)


def plain_name(name: str) -> str:
    """Return a name that every file system takes."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def finished(job: Job) -> Outcome | None:
    """Return the outcome of a run that went to its end before, None where there is none."""
    try:
        metrics = job.run.read_metrics()
    except GsslamError:
        return None
    is_whole = not metrics.get("interrupted") and metrics.get("failure") is None
    is_scored = metrics.get("psnr_db") is not None
    return Outcome(job.name, job.seed, metrics) if is_whole and is_scored else None


def run_job(job: Job, processes: Processes | None = None) -> Outcome:
    """Run a job, go on with it where it was stopped, or return what came of it before."""
    processes = processes or Processes()
    done = finished(job)
    if done is not None:
        return done
    if processes.stopping:
        return Outcome(job.name, job.seed, problem=INTERRUPTED)
    try:
        status, errors = processes.run(_command(job))
    except (OSError, GsslamError) as error:
        return Outcome(job.name, job.seed, problem=str(error))
    done = finished(job)
    return done or Outcome(job.name, job.seed, problem=_reason(status, errors))


def with_files(outcome: Outcome, job: Job) -> Outcome:
    """Return a finished outcome with the files of its run, to be sent to another computer."""
    if outcome.problem:
        return outcome
    files = {name: getattr(job.run, name).read_bytes() for name in _FILES}
    return Outcome(outcome.name, outcome.seed, outcome.metrics, files=files)


def keep_files(outcome: Outcome, job: Job) -> Outcome:
    """Write the files that came with an outcome where they are missing; return the outcome."""
    for name, content in outcome.files.items():
        path: Path = getattr(job.run, name)
        if not path.exists():
            with atomic_path(path) as temporary:
                temporary.write_bytes(content)
    return Outcome(outcome.name, outcome.seed, outcome.metrics, outcome.problem)


def _command(job: Job) -> list[str]:
    """Return the command that brings a job to its end, whatever there is of it."""
    gsslam_command = [sys.executable, "-m", "gsslam"]
    if job.run.checkpoint.exists():
        return [*gsslam_command, "run", "--resume", str(job.folder)]
    if _is_tracked(job):
        return [*gsslam_command, "eval", str(job.folder)]
    shutil.rmtree(job.folder, ignore_errors=True)
    preset = job.folder.with_suffix(".yaml")
    with atomic_path(preset) as temporary:
        temporary.write_text(config_to_yaml(job.config), encoding="utf-8")
    source = job.source.to_values()
    flags = {
        "preset": preset,
        "out": job.folder,
        "device": job.device,
        **{name.replace("_", "-"): value for name, value in source.items() if name != "seed"},
    }
    given = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    return [*gsslam_command, "run", *given]


def _is_tracked(job: Job) -> bool:
    """Return whether a run reached its end and only its views were not scored."""
    try:
        metrics = job.run.read_metrics()
    except GsslamError:
        return False
    return not metrics.get("interrupted") and metrics.get("failure") is None


def _environment() -> dict[str, str]:
    """Return an environment in which this very package is imported."""
    root = str(Path(gsslam.__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not path else os.pathsep.join((root, path))}


def _reason(status: int, errors: str) -> str:
    """Return in one line why a run came to nothing."""
    if status == 130:
        return INTERRUPTED
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix("gsslam: ") if lines else f"ended with status {status}"
