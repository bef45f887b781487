"""The map in files that other programs read."""

from gsslam.export.compact import read_compact, write_compact
from gsslam.export.ply import read_ply, write_ply
from gsslam.export.spz import write_spz

__all__ = ["read_compact", "read_ply", "write_compact", "write_ply", "write_spz"]
