"""Look for data races in the CPU kernels: build them with a thread sanitizer and run all at once.

usage: python -m scripts.thread_sanitizer
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_NATIVE = Path(__file__).resolve().parents[1] / "cuda_ext"
_FLAGS = ["-std=c++20", "-O1", "-g", "-fsanitize=thread", "-pthread", "-DGSSLAM_ISA=portable"]
# Exit status of a program in which the sanitizer found something.
_RACES = 66


def compiler() -> str:
    """Return the C++ compiler: the one that CXX names, else c++."""
    return os.environ.get("CXX") or shutil.which("c++") or "c++"


def obstacle(folder: Path) -> str:
    """Return why no thread sanitizer can be used, empty where it can; ``folder`` is for files."""
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() { return 0; }\n")
    try:
        _compile([*_FLAGS, str(source), "-o", str(program)])
        done = _run(program)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{compiler()} has no thread sanitizer: {error}"
    return "" if done.returncode == 0 else f"the thread sanitizer does not run: {done.stderr[:200]}"


def build(folder: Path) -> Path:
    """Build the program in ``folder``, for the portable instruction set; return its path."""
    sources = [p for p in sorted(_NATIVE.rglob("*.cpp")) if p.parent.name != "bindings"]
    options = [*_FLAGS, f"-I{_NATIVE}"]

    def compiled(source: Path) -> str:
        target = folder / f"{source.parent.name}_{source.stem}.o"
        _compile([*options, "-c", str(source), "-o", str(target)])
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    program = folder / "thread_races"
    _compile([*options, *objects, "-o", str(program)])
    return program


def run(program: Path, *arguments: str) -> str:
    """Run it; return the sanitizer's report or what else is wrong, empty where all is well.

    With any argument it has a race on purpose.
    """
    done = _run(program, *arguments)
    if done.returncode == _RACES:
        return done.stderr
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The sanitizer needs addresses where it expects them: without their randomisation.
    setarch = shutil.which("setarch")
    command = [*([setarch, "-R"] if setarch else []), str(program), *arguments]
    options = f"exitcode={_RACES} halt_on_error=0"
    return subprocess.run(
        command,
        env={**os.environ, "TSAN_OPTIONS": options},
        capture_output=True,
        text=True,
        check=False,
    )


def _compile(arguments: list[str]) -> None:
    subprocess.run([compiler(), *arguments], check=True, capture_output=True, text=True)


def main() -> int:
    """Build, run, and say what was found."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reason = obstacle(folder)
        if reason:
            print(reason, file=sys.stderr)
            return 2
        report = run(build(folder))
    print(report or "no data race")
    return 1 if report else 0


if __name__ == "__main__":
    sys.exit(main())
