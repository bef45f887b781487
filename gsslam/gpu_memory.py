"""How much of a GPU's memory a run takes."""

from __future__ import annotations


class GpuMemory:
    """Samples the memory in use on the GPU, from before a run's first allocation there."""

    def __init__(self, device: str) -> None:
        """Make the context of ``device``, "cpu" or "cuda", that the run will use; none on a CPU."""
        # In use before the run: the context of this process, and what other programs take.
        self._before: int | None = None
        self._peak = 0
        if device == "cuda":
            self._before = _used()

    def sample(self) -> None:
        """Take note of what is in use now."""
        if self._before is not None:
            self._peak = max(self._peak, _used() - self._before)

    @property
    def run_mb(self) -> float | None:
        """The most, in 1e6 bytes, that came after the start; None without a GPU."""
        return None if self._before is None else self._peak / 1e6

    @property
    def context_mb(self) -> float | None:
        """What was in use at the start, in 1e6 bytes; None without a GPU."""
        return None if self._before is None else self._before / 1e6

    def described(self) -> str:
        """Say what was found, with torch's share; empty without a GPU."""
        if self._before is None:
            return ""
        allocated, reserved = _torch_peaks()
        return (
            f"GPU memory: at most {self.run_mb:.0f} MB by the run, {self.context_mb:.0f} MB before"
            f" it; of the run's, torch reserved {reserved / 1e6:.0f} MB for"
            f" {allocated / 1e6:.0f} MB of tensors"
        )


def _used() -> int:
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _torch_peaks() -> tuple[int, int]:
    """Return the most bytes of tensors, and the most that torch kept for them."""
    import torch

    return int(torch.cuda.max_memory_allocated()), int(torch.cuda.max_memory_reserved())
