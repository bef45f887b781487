"""The exceptions of gsslam: one root, so that a caller can catch everything that is known."""

from __future__ import annotations


class GsslamError(Exception):
    """Root of all errors raised on purpose; the text says what is wrong and what to do."""


class ConfigError(GsslamError):
    """A configuration value, preset or command-line argument is unusable."""


class DatasetError(GsslamError):
    """A dataset cannot be opened or used at all."""


class BadFrameError(DatasetError):
    """A single frame cannot be used; the sequence may go on without it."""


class TrackingError(GsslamError):
    """Tracking cannot start or continue."""


class NativeError(GsslamError):
    """A native operation was called with unusable arguments, or failed."""


class CheckpointError(GsslamError):
    """A checkpoint cannot be read, or does not fit to what it is restored into."""


class OutputError(GsslamError):
    """A result cannot be written."""
