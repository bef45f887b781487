"""Give your own images to SLAM, one frame at a time.

Here they come from the synthetic room. Put your camera, your robot or your files in the place of
`images`.

Run: python examples/02_own_frames.py
"""

from collections.abc import Iterator

import numpy as np

from gsslam import Camera, Frame, Slam, SlamConfig, open_dataset


def images() -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Yield time in seconds, colour (H, W, 3) uint8, and depth (H, W) uint16 in millimetres."""
    for frame in open_dataset("synthetic/room", resolution=(96, 72), max_frames=6):
        yield frame.timestamp, frame.rgb, np.rint(1000 * frame.depth).astype(np.uint16)


# Calibrations with pixel centres at integers (OpenCV, ROS) get 0.5 added to cx and cy here.
camera = Camera(width=96, height=72, fx=83.1, fy=83.1, cx=48.0, cy=36.0)

with Slam(SlamConfig(), camera) as slam:  # device="cuda" for a GPU
    for index, (timestamp, rgb, millimetres) in enumerate(images()):
        # Depth in metres along the optical axis, on the pixels of colour; 0 says: not measured.
        depth = millimetres.astype(np.float32) / np.float32(1000)
        result = slam.track(Frame(index, timestamp, rgb, depth, camera))
        if result.tracked:
            x, y, z = result.T_world_camera[:3, 3]
            print(f"frame {index} at ({x:.3f}, {y:.3f}, {z:.3f}) m, {result.spheres} spheres")
        else:
            print(f"frame {index} lost: {result.reason}")
    trajectory = slam.finish()

print(len(trajectory), "poses; the first camera is the world's origin")
