"""Compare a trajectory with the true one, and views of the map with the images.

Run: python examples/04_evaluate.py
"""

import numpy as np

from gsslam import Slam, SlamConfig, open_dataset
from gsslam.evaluation import score_view
from gsslam.evaluation.trajectory import position_errors, root_mean_square

dataset = open_dataset("synthetic/room_noisy", resolution=(96, 72), max_frames=12)
with Slam(SlamConfig(), dataset.camera) as slam:
    frames = list(dataset)
    for frame in frames:
        slam.track(frame)
    trajectory = slam.finish()

    # The estimate is moved onto the truth as a whole, without scale; all frames count.
    truth = np.array([frame.T_world_camera for frame in frames])
    errors = position_errors(trajectory.T_world_camera, truth)
    print(f"ATE RMSE {100 * root_mean_square(errors):.2f} cm, worst {100 * errors.max():.2f} cm")

    # Every 8th frame was kept out of the map, so that it scores a view that was never fitted.
    for frame, pose in zip(frames, trajectory.T_world_camera, strict=True):
        score = score_view(slam.render(pose), frame)
        if frame.index % 4 == 3:
            kind = "held out" if frame.index % 8 == 7 else "seen"
            psnr, ssim = score.psnr_db, score.ssim
            print(f"frame {frame.index} ({kind}): PSNR {psnr:.1f} dB, SSIM {ssim:.3f}")
