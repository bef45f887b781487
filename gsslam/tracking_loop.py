"""The loop over the frames of a sequence, from the first or from a checkpoint."""

from __future__ import annotations

import logging
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gsslam.checkpoint import Checkpoint
from gsslam.config import SlamConfig
from gsslam.errors import BadFrameError, DatasetError
from gsslam.evaluation.records import FrameRecord
from gsslam.gpu_memory import GpuMemory
from gsslam.interrupt import Interrupt
from gsslam.keyframes import is_heldout
from gsslam.observer import Observer
from gsslam.presets import config_hash
from gsslam.reader import FrameReader
from gsslam.report import Cost, OnProgress, Progress, TrackedSequence
from gsslam.sensor_clock import SensorClock
from gsslam.trace import Trace
from gsslam.trajectory import Trajectory

if TYPE_CHECKING:
    from gsslam.datasets.base import Dataset
    from gsslam.slam import Slam

# A sequence is refused when more than half of this many first frames are unusable.
_TRIAL_FRAMES = 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopOptions:
    """How the frames are gone through; nothing here but ``realtime`` changes the result."""

    # 1: reading, tracking and mapping take turns; 2: each has threads of its own.
    threads: int = 2
    # Follow the sensor's clock, and drop the frames for which there is no time.
    realtime: bool = False
    # Frames between checkpoints; 0 makes none.
    checkpoint_every: int = 200


@dataclass(frozen=True)
class LoopResult:
    """What the loop over the frames gave, and why it ended."""

    tracked: TrackedSequence
    interrupted: bool
    # What stopped it; None where it reached its end or Ctrl-C did.
    failure: Exception | None


class _UnusableError(DatasetError):
    """So many frames are unusable that nothing is worth saving."""


class TrackingLoop:
    """Tracks every frame until the end, Ctrl-C, or a failure after the first frame."""

    def __init__(
        self,
        dataset: Dataset,
        slam: Slam,
        config: SlamConfig,
        options: LoopOptions,
        *,
        interrupt: Interrupt,
        on_progress: OnProgress,
        save: Callable[[Checkpoint], None],
        trace: Trace,
        observer: Observer,
        gpu: GpuMemory,
    ) -> None:
        """``save`` is given a checkpoint whenever one is due; ``gpu`` was made before ``slam``."""
        self._dataset, self._slam, self._config = dataset, slam, config
        self._options = options
        self._interrupt = interrupt
        self._on_progress = on_progress
        self._save = save
        self._trace = trace
        self._observer, self._gpu = observer, gpu
        self._records: list[FrameRecord] = []
        self._started = time.perf_counter()

    def run(self, checkpoint: Checkpoint | None = None) -> LoopResult:
        """Go through the frames, those of ``checkpoint`` excepted.

        Raises DatasetError where most frames are unusable, CheckpointError where the checkpoint
        does not belong to this dataset and configuration.
        """
        if checkpoint is not None:
            self._restore(checkpoint)
        self._observer.on_start(self._dataset, self._config, self._slam)
        failure: Exception | None = None
        try:
            self._go_through(len(self._records))
        except Exception as error:  # of any kind: what there is must be saved first
            failure = error
        if not self._trajectory_length() or isinstance(failure, _UnusableError):
            raise failure or DatasetError(f"{self._dataset.name} has no usable frame")
        if failure is not None:
            _log.error("stopped at frame %d: %s", len(self._records), failure)
        return self._finish(failure)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._slam.restore(checkpoint.slam, self._dataset.__getitem__)
        self._records = list(checkpoint.records)
        self._started -= checkpoint.loop_s

    def _go_through(self, first: int) -> None:
        total, every = len(self._dataset), self._options.checkpoint_every
        with FrameReader(
            self._dataset, self._trace, first=first, own_threads=self._options.threads > 1
        ) as reader:
            clock = None
            while len(self._records) < total:
                if clock is not None:
                    self._drop(reader, clock.newest(len(self._records)))
                began = time.perf_counter()
                self._process(reader)
                loop_ms = 1000 * (time.perf_counter() - began)
                self._records[-1] = replace(self._records[-1], loop_ms=loop_ms)
                self._refuse_unusable(total)
                done = len(self._records)
                if clock is None and self._options.realtime:
                    # The first frame is there when the clock starts.
                    clock = SensorClock(self._dataset.timestamps, done - 1)
                last = self._records[-1]
                self._on_progress(Progress("tracking", done, total, last.spheres, last))
                stopping = self._interrupt.requested
                if every and done < total and (done % every == 0 or stopping):
                    self._save(self._checkpoint())
                if stopping:
                    _log.warning("interrupted after frame %d of %d", done, total)
                    break

    def _process(self, reader: FrameReader) -> None:
        """Track the next frame; one that cannot be read is skipped."""
        index = len(self._records)
        heldout = is_heldout(index, self._config.keyframes.heldout_every)
        try:
            frame, reading_ms = reader.read()
        except BadFrameError as error:
            _log.warning("skipped frame %d: %s", index, error)
            record = FrameRecord.of_missing(index, "skipped", str(error), heldout=heldout)
            self._records.append(record)
            return
        result = self._slam.track(frame)
        self._observer.on_frame(frame, result)
        if result.is_keyframe:
            self._gpu.sample()
        if not result.tracked:
            _log.warning("lost frame %d: %s", index, result.reason)
        elif self._records and self._records[-1].status == "lost":
            _log.info("found the camera again at frame %d", index)
        record = FrameRecord.of_result(result, heldout=heldout, reading_ms=reading_ms)
        self._records.append(record)

    def _drop(self, reader: FrameReader, newest: int) -> None:
        """Pass over the frames that came while there was no time for them."""
        for index in range(len(self._records), newest):
            heldout = is_heldout(index, self._config.keyframes.heldout_every)
            reader.skip()
            record = FrameRecord.of_missing(index, "dropped", "no time", heldout=heldout)
            self._records.append(record)

    def _refuse_unusable(self, total: int) -> None:
        """Raise DatasetError once more than half of the first frames were skipped."""
        trial = min(_TRIAL_FRAMES, total)
        skipped = [record for record in self._records[:trial] if record.status == "skipped"]
        if len(self._records) <= trial and 2 * len(skipped) > trial:
            raise _UnusableError(
                f"{len(skipped)} of the first {len(self._records)} frames are unusable;"
                f" frame {skipped[0].index}: {skipped[0].reason}"
            )

    def _checkpoint(self) -> Checkpoint:
        with self._trace.span("checkpoint", len(self._records)):
            return Checkpoint(
                len(self._records),
                list(self._records),
                time.perf_counter() - self._started,
                config_hash(self._config),
                self._slam.state(),
            )

    def _trajectory_length(self) -> int:
        return sum(record.seen for record in self._records)

    def _finish(self, failure: Exception | None) -> LoopResult:
        try:
            finished = self._slam.finish()
        except Exception as error:  # a keyframe that was still on its way
            _log.error("mapping stopped: %s", error)
            failure = failure or error
            finished = self._slam.finish()
        self._observer.on_end(self._slam)
        # The frame that failed may have a pose by now; it has no record.
        count = self._trajectory_length()
        trajectory = Trajectory(finished.timestamps[:count], finished.T_world_camera[:count])
        counted = max((record.memory_mb or 0.0 for record in self._records), default=0.0)
        loop_s = time.perf_counter() - self._started
        self._gpu.sample()
        if description := self._gpu.described():
            _log.info("%s", description)
        cost = Cost(
            *(loop_s, _peak_memory_mb(), counted),
            gpu_memory_mb=self._gpu.run_mb,
            gpu_context_mb=self._gpu.context_mb,
        )
        tracked = TrackedSequence(self._records, trajectory, cost)
        return LoopResult(tracked, self._interrupt.requested, failure)


def _peak_memory_mb() -> float:
    """Return the largest resident memory of this process so far, in 1e6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kibibytes, macOS bytes.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
