"""RGB-D sequences: one Protocol, one file for each kind."""

from gsslam.datasets.base import Dataset
from gsslam.datasets.registry import open_dataset

__all__ = ["Dataset", "open_dataset"]
