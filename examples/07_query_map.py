"""Let a map learn an image encoder's features, then ask it where something else looks alike.

Needs the extra `features`. Run: python examples/07_query_map.py [FOLDER]
"""

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from gsslam import Slam, SlamConfig, open_dataset
from gsslam.config import FeaturesConfig
from gsslam.features.query import heat_colours

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples/07")
out.mkdir(parents=True, exist_ok=True)

# Features are learned from the third keyframe on, so that a few frames are enough here.
features = FeaturesConfig(enabled=True, atoms=60, first_keyframes=2, filling_keyframes=2)
dataset = open_dataset("synthetic/room", resolution=(160, 120), max_frames=14)

with Slam(replace(SlamConfig(), features=features), dataset.camera) as slam:
    for frame in dataset:
        slam.track(frame)
    pose = slam.finish().T_world_camera[-1]

    # What is like the pixel in column 80, row 60 of the last view? 1 is equal, 0 the average.
    feature = slam.features.feature_at(pose, (80, 60))
    heat = slam.features.heat(feature, pose).numpy()
    scores = slam.features.scores(feature)
    picture = slam.render(pose).colour

print(f"likeness of the pixel to itself {heat[60, 80]:.2f}, of the view {heat.mean():.2f}")
print(f"{int((scores > 0.5).sum())} of {len(scores)} spheres are much alike")
bgr = np.rint(255 * np.clip(heat_colours(picture, heat)[:, :, ::-1], 0, 1)).astype(np.uint8)
cv2.imwrite(str(out / "query.png"), bgr)
print("written to", out)
