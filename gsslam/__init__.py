"""gsslam: RGB-D SLAM with a map of isotropic Gaussian spheres."""

from gsslam.camera import Camera
from gsslam.config import SlamConfig
from gsslam.datasets import open_dataset
from gsslam.errors import (
    BadFrameError,
    ConfigError,
    DatasetError,
    GsslamError,
    NativeError,
    OutputError,
    TrackingError,
)
from gsslam.frame import Frame
from gsslam.raster.interface import Rendering, Spheres, rasterize
from gsslam.results import RenderedView, TrackingResult
from gsslam.slam import Slam
from gsslam.trajectory import Trajectory

__version__ = "0.1.0"

__all__ = [
    "BadFrameError",
    "Camera",
    "ConfigError",
    "DatasetError",
    "Frame",
    "GsslamError",
    "NativeError",
    "OutputError",
    "RenderedView",
    "Rendering",
    "Slam",
    "SlamConfig",
    "Spheres",
    "TrackingError",
    "TrackingResult",
    "Trajectory",
    "open_dataset",
    "rasterize",
]
