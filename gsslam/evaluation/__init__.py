"""Measured quality of a run: trajectory against ground truth, rendered views against the input."""

from gsslam.evaluation.evaluate import Evaluation, evaluate
from gsslam.evaluation.images import ViewScore, score_view
from gsslam.evaluation.records import FrameRecord
from gsslam.evaluation.summary import quality_metrics, time_metrics

__all__ = [
    "Evaluation",
    "FrameRecord",
    "ViewScore",
    "evaluate",
    "quality_metrics",
    "score_view",
    "time_metrics",
]
