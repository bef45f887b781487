"""The choice between CPU and GPU."""

from __future__ import annotations

from gsslam import _native
from gsslam.errors import ConfigError


def resolve_device(name: str) -> str:
    """Return ``"cpu"`` or ``"cuda"`` for ``"auto"``, ``"cpu"`` or ``"cuda"``.

    ``auto`` takes the GPU where there is a usable one. Raises ConfigError where ``cuda`` is asked
    for and there is none.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device {name!r} must be one of auto, cpu, cuda")
    if name == "cpu":
        return "cpu"
    obstacle = _cuda_obstacle()
    if name == "cuda" and obstacle:
        raise ConfigError(f"--device cuda: {obstacle}; use --device cpu or auto")
    return "cpu" if obstacle else "cuda"


def _cuda_obstacle() -> str:
    """Return why the GPU cannot be used; empty where it can."""
    problem = _native.cuda_problem()
    if problem:
        return problem
    import torch

    if not torch.cuda.is_available():
        return "torch finds no usable NVIDIA GPU; install a build of torch with CUDA"
    return ""
