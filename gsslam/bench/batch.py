"""Many jobs: several at a time on this computer, or on a cluster through Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gsslam
from gsslam.bench.job import (
    INTERRUPTED,
    Job,
    Outcome,
    Processes,
    finished,
    keep_files,
    run_job,
    with_files,
)
from gsslam.errors import ConfigError
from gsslam.extras import require

OnOutcome = Callable[[Outcome], None]
# Address that starts Ray on this computer alone.
LOCAL_RAY = "local"


@dataclass(frozen=True)
class Batch:
    """The outcomes of all jobs, in their order."""

    outcomes: tuple[Outcome, ...]
    # Ctrl-C ended it: runs that had begun can be gone on with.
    interrupted: bool


def run_batch(jobs: Sequence[Job], at_a_time: int, on_outcome: OnOutcome, ray: str = "") -> Batch:
    """Run what is not finished, ``at_a_time`` jobs at most, and return all outcomes.

    ``ray`` is the address of a Ray cluster; empty keeps to this computer and its processes. Ctrl-C
    lets the runs save what they have. Raises ConfigError where Ray cannot be reached.
    """
    if at_a_time < 1:
        raise ConfigError(f"--jobs {at_a_time} must be at least 1")
    outcomes: dict[int, Outcome] = {}

    def take(index: int, outcome: Outcome) -> None:
        outcomes[index] = outcome
        on_outcome(outcome)

    for index, job in enumerate(jobs):
        done = finished(job)
        if done is not None:
            take(index, done)
    missing = {index: job for index, job in enumerate(jobs) if index not in outcomes}
    run = _run_on_ray if ray else _run_here
    interrupted = bool(missing) and run(missing, at_a_time, take, ray)
    stopped = (outcomes.get(i) or _stopped(job) for i, job in enumerate(jobs))
    return Batch(tuple(stopped), interrupted)


def _run_here(
    jobs: dict[int, Job], at_a_time: int, take: Callable[[int, Outcome], None], _: str
) -> bool:
    """Run jobs from threads that wait for their processes; return whether Ctrl-C ended it."""
    processes = Processes()
    interrupted = False
    with ThreadPoolExecutor(at_a_time) as pool:
        futures = {pool.submit(run_job, job, processes): index for index, job in jobs.items()}
        waiting = as_completed(list(futures))
        while True:
            try:
                for future in waiting:
                    take(futures.pop(future), future.result())
                return interrupted
            except KeyboardInterrupt:
                interrupted = True
                processes.stop()
                waiting = as_completed(list(futures))


def _run_on_ray(
    jobs: dict[int, Job], at_a_time: int, take: Callable[[int, Outcome], None], address: str
) -> bool:
    """Run jobs as Ray's tasks, each of which waits for a process of its own."""
    ray = _connect(address, at_a_time)
    try:
        remote = ray.remote(max_retries=0)(_job_with_files)
        waiting, running = list(jobs.items()), dict[Any, int]()
        try:
            while waiting or running:
                while waiting and len(running) < at_a_time:
                    index, job = waiting.pop(0)
                    gpus = 1 if job.device == "cuda" else 0
                    running[remote.options(num_gpus=gpus).remote(job)] = index
                for reference in ray.wait(list(running))[0]:
                    index = running.pop(reference)
                    take(index, _outcome(ray, reference, jobs[index]))
        except KeyboardInterrupt:
            for reference in running:
                ray.cancel(reference)
            ray.wait(list(running), num_returns=len(running), timeout=_SECONDS_TO_SAVE)
            return True
        return False
    finally:
        ray.shutdown()


# How long an interrupted run on another computer may take for its frame and its checkpoint.
_SECONDS_TO_SAVE = 30.0


def _connect(address: str, at_a_time: int) -> Any:
    ray: Any = require("ray", "ray", "--ray")
    # It would report to its makers otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    package = str(Path(gsslam.__file__).resolve().parents[1])
    local = {"num_cpus": at_a_time, "include_dashboard": False} if address == LOCAL_RAY else {}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": {"PYTHONPATH": package}},
            logging_level="ERROR",
            log_to_driver=False,
            **local,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"--ray {address}: no Ray cluster there: {reason}") from error
    return ray


def _job_with_files(job: Job) -> Outcome:
    """Run a job on whatever computer; its files come back with the outcome."""
    return with_files(run_job(job), job)


def _outcome(ray: Any, reference: Any, job: Job) -> Outcome:
    """Return what came of a task; a computer that was lost is a problem of its job alone."""
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Outcome(job.name, job.seed, problem=f"Ray: {lines[-1]}")
    return keep_files(outcome, job)


def _stopped(job: Job) -> Outcome:
    return Outcome(job.name, job.seed, problem=INTERRUPTED)
