"""Write a map to files, read it again, and render it without SLAM.

Run: python examples/05_export_map.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

from gsslam import Slam, SlamConfig, Trajectory, open_dataset
from gsslam.export import read_compact, read_ply, write_compact, write_ply
from gsslam.rendering import MapRenderer

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples/05")
out.mkdir(parents=True, exist_ok=True)

dataset = open_dataset("synthetic/room", resolution=(96, 72), max_frames=6)
config = SlamConfig()
with Slam(config, dataset.camera) as slam:
    for frame in dataset:
        slam.track(frame)
    slam.finish().write(out / "trajectory.txt")  # TUM's format
    spheres = slam.map.state()

write_ply(spheres, out / "map.ply")  # for splat viewers
write_compact(spheres, out / "map.npz")  # the same in 11 bytes a sphere
for name in ("map.ply", "map.npz"):
    print(f"{name}: {(out / name).stat().st_size / len(spheres):.0f} bytes a sphere")

# The PLY is exact; the compact file rounds.
again = read_ply(out / "map.ply")
assert len(again) == len(spheres)
assert np.array_equal(again.xyz, spheres.xyz)
moved = np.abs(read_compact(out / "map.npz").xyz.mean(axis=0) - spheres.xyz.mean(axis=0))

pose = Trajectory.read(out / "trajectory.txt").T_world_camera[0]
view = MapRenderer(again, config.map.low_pass).render(pose, dataset.camera)
print(f"{len(again)} spheres cover {100 * view.silhouette.mean():.0f} % of the first view")
print(f"the compact file moves the map's centre by {1e6 * moved.max():.1f} micrometres")
