"""Build a map, then look at it from where the camera never was.

Run: python examples/03_render_views.py [FOLDER]
"""

import sys
from pathlib import Path

import cv2
import numpy as np

from gsslam import Camera, Slam, SlamConfig, open_dataset

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples/03")
out.mkdir(parents=True, exist_ok=True)

dataset = open_dataset("synthetic/room", resolution=(96, 72), max_frames=9)
with Slam(SlamConfig(), dataset.camera) as slam:
    for frame in dataset:
        slam.track(frame)
    trajectory = slam.finish()

    # 20 cm to the right of the last camera, in its own axes: x right, y down, z ahead.
    beside = np.eye(4)
    beside[0, 3] = 0.2
    T_world_camera = trajectory.T_world_camera[-1] @ beside

    # Any camera will do, not only that of the sequence.
    camera = Camera(width=160, height=120, fx=130.0, fy=130.0, cx=80.0, cy=60.0)
    view = slam.render(T_world_camera, camera)

bgr = np.rint(255 * np.clip(view.colour[:, :, ::-1], 0, 1)).astype(np.uint8)
millimetres = np.rint(1000 * view.depth).astype(np.uint16)
cv2.imwrite(str(out / "colour.png"), bgr)
cv2.imwrite(str(out / "depth.png"), millimetres)
print(f"the map covers {100 * view.silhouette.mean():.0f} % of the view")
print(f"median depth {np.median(view.depth[view.depth > 0]):.2f} m")
print("written to", out)
