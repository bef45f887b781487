"""gsslam: RGB-D SLAM with a map of isotropic Gaussian spheres."""

__version__ = "0.1.0"
