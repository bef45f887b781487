"""From scored frames to the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from gsslam.evaluation.evaluate import Evaluation
from gsslam.evaluation.records import FrameRecord
from gsslam.evaluation.trajectory import (
    relative_errors,
    root_mean_square,
    second_pairs,
    successive_pairs,
)
from gsslam.results import Metric


def quality_metrics(evaluation: Evaluation) -> list[Metric]:
    """Return counts, trajectory errors and view scores.

    Every frame that was read counts, lost ones too. ATE and RPE are root mean squares over all
    frames with ground truth; view scores are means of the scores of the frames (so a PSNR is the
    mean of PSNRs in dB). Held-out frames were never in the map.
    """
    records = evaluation.records
    seen = [record for record in records if record.seen]
    heldout = [record for record in seen if record.heldout]
    return [
        Metric("frames", len(seen), ""),
        *_loss_metrics(seen),
        Metric("skipped_frames", sum(record.status == "skipped" for record in records), ""),
        Metric("dropped_frames", sum(record.status == "dropped" for record in records), ""),
        Metric("keyframes", sum(record.keyframe for record in seen), ""),
        *_trajectory_metrics(evaluation),
        Metric("psnr_db", _mean(record.psnr_db for record in seen), "dB"),
        Metric("psnr_exposure_db", _mean(record.psnr_exposure_db for record in seen), "dB"),
        Metric("psnr_heldout_db", _mean(record.psnr_db for record in heldout), "dB"),
        Metric(
            "psnr_heldout_exposure_db", _mean(record.psnr_exposure_db for record in heldout), "dB"
        ),
        Metric("ssim", _mean(record.ssim for record in seen), ""),
        Metric("ssim_heldout", _mean(record.ssim for record in heldout), ""),
        Metric("depth_l1_cm", _mean(record.depth_l1_cm for record in seen), "cm"),
        Metric("depth_coverage_pct", _mean(record.depth_coverage_pct for record in seen), "%"),
    ]


def _loss_metrics(seen: Sequence[FrameRecord]) -> list[Metric]:
    """Return how often and for how long the camera was lost; ``seen`` in tracking order."""
    lengths = [
        len(list(frames)) for lost, frames in groupby(seen, lambda r: r.status == "lost") if lost
    ]
    found_again = len(lengths) - bool(seen and seen[-1].status == "lost")
    return [
        Metric("lost_frames", sum(lengths), ""),
        Metric("longest_loss_frames", max(lengths, default=0), ""),
        Metric("recoveries", found_again, ""),
    ]


def _trajectory_metrics(evaluation: Evaluation) -> list[Metric]:
    """Return ATE and RPE; values are None where fewer than two frames have ground truth."""
    estimate, truth = evaluation.estimate, evaluation.truth
    errors = [r.position_error_cm for r in evaluation.records if r.position_error_cm is not None]
    enough = len(truth) >= 2
    ate = root_mean_square(np.array(errors)) if enough else None
    metrics = [Metric("ate_rmse_cm", ate, "cm")]
    for suffix, pairs in (
        ("", successive_pairs(len(truth))),
        ("_1s", second_pairs(truth.timestamps)),
    ):
        translation = rotation = None
        if len(pairs):
            shifts, angles = relative_errors(estimate.T_world_camera, truth.T_world_camera, pairs)
            translation = 100 * root_mean_square(shifts)
            rotation = float(np.degrees(root_mean_square(angles)))
        metrics.append(Metric(f"rpe_translation{suffix}_cm", translation, "cm"))
        metrics.append(Metric(f"rpe_rotation{suffix}_deg", rotation, "deg"))
    return metrics


def time_metrics(records: Sequence[FrameRecord], loop_seconds: float | None) -> list[Metric]:
    """Return frames per second and the mean milliseconds a frame takes in each part.

    ``loop_seconds`` is wall time from the first read to the finished trajectory: reading and
    decoding files count, evaluation does not. Means are over all frames that were read.
    """
    seen = [record for record in records if record.seen]
    return [
        Metric("frames_per_s", len(seen) / loop_seconds if loop_seconds else None, "1/s"),
        Metric("reading_ms", _mean(record.reading_ms for record in seen), "ms"),
        Metric("tracking_ms", _mean(record.tracking_ms for record in seen), "ms"),
        Metric("mapping_ms", _mean(record.mapping_ms for record in seen), "ms"),
        Metric("waiting_ms", _mean(record.waiting_ms for record in seen), "ms"),
    ]


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None
