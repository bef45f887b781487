"""From a finished loop to what describes it: metrics, plots, and one page to look at."""

from gsslam.report.finish import (
    Cost,
    OnProgress,
    Progress,
    TrackedSequence,
    map_metrics,
    report,
)

__all__ = ["Cost", "OnProgress", "Progress", "TrackedSequence", "map_metrics", "report"]
