"""What gsslam runs on: Python, torch, GPU, native module, threads and disk."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import torch

import gsslam
from gsslam import _native
from gsslam.diagnosis.fact import Fact
from gsslam.native import cuda_problem

_DRIVER = Path("/proc/driver/nvidia/version")
_LEAST_DISK_GB = 1.0
_OLDEST_PYTHON = (3, 10)


def machine_facts(folder: Path) -> list[Fact]:
    """Return what is known of this computer; results of runs would go to ``folder``."""
    return [
        Fact("gsslam", f"{gsslam.__version__} in {Path(gsslam.__file__).parent}"),
        _python(),
        Fact("torch", f"{torch.__version__}, {_torch_cuda()}"),
        *gpu_facts(cuda_problem(0), has_driver=_DRIVER.exists()),
        _native_module(),
        _threads(),
        disk_fact(folder, shutil.disk_usage(folder).free / 1e9),
    ]


def _python() -> Fact:
    problem = "" if sys.version_info >= _OLDEST_PYTHON else "Python 3.10 or newer is needed"
    return Fact("Python", f"{platform.python_version()} on {platform.platform()}", problem)


def _torch_cuda() -> str:
    return f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU"


def gpu_facts(obstacle: str, *, has_driver: bool) -> list[Fact]:
    """Return the GPU and its driver; ``obstacle`` says why it cannot be used, empty where it can.

    No GPU at all is nothing wrong; one that has a driver and cannot be used is.
    """
    if obstacle:
        unusable = f"the GPU cannot be used: {obstacle}" if has_driver else ""
        return [Fact("GPU", f"none usable ({obstacle}); the CPU is used", unusable)]
    properties = torch.cuda.get_device_properties(0)
    memory = f"{properties.total_memory / 1e9:.0f} GB"
    compute = f"compute capability {properties.major}.{properties.minor}"
    facts = [Fact("GPU", f"{properties.name}, {memory}, {compute}")]
    if has_driver:
        facts.append(Fact("GPU driver", _DRIVER.read_text(encoding="utf-8").splitlines()[0]))
    return facts


def _native_module() -> Fact:
    kernels = "CPU and CUDA kernels" if hasattr(_native, "CudaAdam") else "CPU kernels only"
    path = Path(str(_native.__file__))
    return Fact("native module", f"{kernels}, instruction set {_native.isa()}, {path}")


def _threads() -> Fact:
    return Fact("threads", f"{_native.thread_count()} for kernels, of {os.cpu_count()} processors")


def disk_fact(folder: Path, free_gb: float) -> Fact:
    """Return how much room there is for results in ``folder``."""
    problem = ""
    if free_gb < _LEAST_DISK_GB:
        problem = f"only {free_gb:.2f} GB are free in {folder}: a run may need {_LEAST_DISK_GB:g}"
    return Fact("disk", f"{free_gb:.0f} GB free in {folder}", problem)
