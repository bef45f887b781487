"""Rendering of spheres: one interface, a readable reference and native kernels."""

from gsslam.raster.interface import Rendering, Spheres, rasterize

__all__ = ["Rendering", "Spheres", "rasterize"]
