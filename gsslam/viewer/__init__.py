"""The map, the camera and the numbers in a browser, while a run goes on and afterwards."""

from __future__ import annotations

from gsslam.viewer.live import LiveViewer
from gsslam.viewer.playback import Playback

__all__ = ["LiveViewer", "Playback"]
