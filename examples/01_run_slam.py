"""Run SLAM over a sequence, write its run folder, and print what was measured.

Run: python examples/01_run_slam.py [FOLDER]
"""

import sys
from pathlib import Path

from gsslam.presets import load_preset
from gsslam.run import run_dataset
from gsslam.source import Source

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples/01")

# What to read. Any name of `gsslam datasets list` will do, or the path of a recording.
source = Source("synthetic/room", resolution=(96, 72), max_frames=12)
dataset = source.open()

# The same run as that of `gsslam run --preset synthetic`, with the same bytes.
result = run_dataset(dataset, load_preset("synthetic"), out, source=source)

for metric in result.metrics:
    if metric.value is not None:
        print(f"{metric.name}: {metric.value:.4g} {metric.unit}".rstrip())
print("written to", result.folder)
