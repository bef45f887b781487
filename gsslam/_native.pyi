"""Types of the native module; gsslam/native.py checks what goes in."""

def thread_count() -> int: ...
def set_thread_count(count: int) -> None: ...
def isa() -> str: ...
def set_isa(name: str) -> bool: ...

class CpuAdam:
    def __init__(self, beta1: float, beta2: float, epsilon: float) -> None: ...
    def step(
        self,
        parameters: int,
        gradient: int,
        first_moment: int,
        second_moment: int,
        steps: int,
        learning_rates: int,
        rows: int,
        capacity: int,
        count: int,
    ) -> tuple[int, int]: ...
