"""A run's whole state in one file, from which it goes on as if it had never stopped."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gsslam.errors import CheckpointError
from gsslam.evaluation.records import FrameRecord
from gsslam.files import atomic_path
from gsslam.slam_state import SlamState

# First line of the file; the number changes when older versions could not read it.
_MAGIC = b"gsslam checkpoint 2\n"
_DIGEST_LENGTH = hashlib.sha256().digest_size
# The array that holds everything else, as JSON.
_VALUES = "values"


@dataclass(frozen=True)
class Checkpoint:
    """What had been reached before frame ``next_index``."""

    next_index: int
    records: list[FrameRecord]
    # Wall seconds spent on the frames.
    loop_s: float
    # Hash of the configuration that the state belongs to.
    config_hash: str
    slam: SlamState

    def write(self, path: Path) -> None:
        """Replace the file ``path`` in one step; raises OutputError where it cannot be written."""
        values = {
            "next_index": self.next_index,
            "records": [asdict(record) for record in self.records],
            "loop_s": self.loop_s,
            "config_hash": self.config_hash,
            "slam": self.slam.values,
        }
        text = np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **{_VALUES: text, **self.slam.arrays})
        content = buffer.getbuffer()
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            file.write(_MAGIC)
            file.write(hashlib.sha256(content).digest())
            file.write(content)

    @staticmethod
    def read(path: Path) -> Checkpoint:
        """Read a file; raises CheckpointError where it is damaged or of another version."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
        if not data.startswith(_MAGIC):
            raise CheckpointError(f"{path} is not a checkpoint of this version of gsslam")
        start = len(_MAGIC) + _DIGEST_LENGTH
        if hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
            raise CheckpointError(f"{path} is damaged: its content does not match its hash")
        try:
            with np.load(io.BytesIO(data[start:]), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            values = json.loads(arrays.pop(_VALUES).tobytes())
            records = [FrameRecord(**record) for record in values["records"]]
            return Checkpoint(
                *(values["next_index"], records, values["loop_s"], values["config_hash"]),
                SlamState(arrays, values["slam"]),
            )
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{path} does not hold what a checkpoint should") from error
