"""Those metrics that a reader looks for, in the order of the table; metrics.json has all."""

from __future__ import annotations

from dataclasses import dataclass

_HEADLINES = ("ate_rmse_cm", "psnr_db", "frames_per_s")


@dataclass(frozen=True)
class Row:
    """How one metric is shown."""

    # Key in metrics.json.
    name: str
    # What a reader calls it.
    label: str
    unit: str
    decimals: int

    @property
    def is_headline(self) -> bool:
        """Whether it is among the few that are looked at first."""
        return self.name in _HEADLINES

    def formatted(self, value: float | None) -> str:
        """Return the value as a reader wants it; a dash where there is none."""
        return "-" if value is None else f"{value:,.{self.decimals}f}"


# Sections of the table.
METRICS_TABLE = (
    (
        Row("frames", "frames", "", 0),
        Row("lost_frames", "frames lost", "", 0),
        Row("recoveries", "times found again", "", 0),
        Row("skipped_frames", "frames skipped (unreadable)", "", 0),
        Row("dropped_frames", "frames dropped (no time)", "", 0),
        Row("keyframes", "keyframes", "", 0),
    ),
    (
        Row("ate_rmse_cm", "ATE RMSE, all frames", "cm", 2),
        Row("rpe_translation_cm", "RPE translation, frame to frame", "cm", 3),
        Row("rpe_rotation_deg", "RPE rotation, frame to frame", "deg", 3),
        Row("rpe_translation_1s_cm", "RPE translation, over a second", "cm", 2),
        Row("rpe_rotation_1s_deg", "RPE rotation, over a second", "deg", 2),
    ),
    (
        Row("psnr_db", "PSNR, all frames", "dB", 2),
        Row("psnr_exposure_db", "PSNR, exposure fitted", "dB", 2),
        Row("psnr_heldout_db", "PSNR, held-out frames", "dB", 2),
        Row("psnr_heldout_exposure_db", "PSNR, held-out, exposure fitted", "dB", 2),
        Row("ssim", "SSIM, all frames", "", 3),
        Row("ssim_heldout", "SSIM, held-out frames", "", 3),
        Row("depth_l1_cm", "depth L1", "cm", 2),
        Row("depth_coverage_pct", "depth covered", "%", 1),
    ),
    (
        Row("frames_per_s", "speed, reading included", "1/s", 1),
        Row("reading_ms", "reading, mean a frame", "ms", 1),
        Row("tracking_ms", "tracking, mean a frame", "ms", 1),
        Row("mapping_ms", "mapping, mean a frame", "ms", 1),
        Row("waiting_ms", "tracking's wait for mapping, mean a frame", "ms", 1),
        Row("peak_memory_mb", "peak memory of the process", "MB", 0),
        Row("gpu_memory_mb", "peak memory of the run on the GPU", "MB", 0),
        Row("gpu_context_mb", "in use there before it (context)", "MB", 0),
        Row("peak_budget_mb", "peak of what the memory budget counts", "MB", 0),
        Row("spheres", "spheres", "", 0),
        Row("map_mb", "map file", "MB", 2),
        Row("compact_map_mb", "compact map file", "MB", 2),
    ),
)
