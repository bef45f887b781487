"""The map in files that other programs read."""

from gsslam.export.ply import read_ply, write_ply

__all__ = ["read_ply", "write_ply"]
