"""Numbers that every rasteriser shares; the native ones are in cuda_ext/rasterize/constants.h."""

from __future__ import annotations

# Metres: spheres nearer than this are not drawn.
NEAR_PLANE = 0.01
# Pixels: spheres whose projection is wider are not drawn.
MAX_SIGMA = 1e6
# A fainter contribution to a pixel is dropped.
MIN_ALPHA = 1 / 255
# One sphere never stops all light; where it would, its gradient is zero.
MAX_ALPHA = 0.99
# A pixel whose transmittance has fallen below takes no more spheres.
MIN_TRANSMITTANCE = 1e-4
# Pixels^2 added to projected variances unless told otherwise.
DEFAULT_LOW_PASS = 0.3
# Most feature channels.
MAX_FEATURES = 64

# Rows of the parameter matrix.
ROW_XYZ = slice(0, 3)
ROW_LOG_RADIUS = 3
ROW_OPACITY_LOGIT = 4
ROW_RGB = slice(5, 8)
ROW_FEATURE = 8

# Planes of a rendered image: colour, then the sums of weight x depth and of weight, then features.
PLANE_DEPTH = 3
PLANE_SILHOUETTE = 4
PLANE_FEATURE = 5

# Rows of the statistics.
STAT_WEIGHT, STAT_WEIGHTED_ERROR, STAT_MAX_WEIGHT, STAT_PIXELS = range(4)
STATISTICS = 4
