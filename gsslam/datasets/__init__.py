"""RGB-D sequences: one Protocol, one file for each kind."""

from gsslam.datasets.base import Dataset
from gsslam.datasets.registry import DatasetInfo, describe, list_datasets, open_dataset

__all__ = ["Dataset", "DatasetInfo", "describe", "list_datasets", "open_dataset"]
