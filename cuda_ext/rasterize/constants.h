// The numbers that the CPU, CUDA and reference rasterisers share. gsslam/raster/reference.py
// repeats them in Python; a test compares the two.
#pragma once

namespace gsslam {

inline constexpr int kTile = 16;                   // pixels on a tile's side
inline constexpr int kMaxFeatures = 64;            // feature channels of a sphere
inline constexpr float kNearPlane = 0.01f;         // metres; spheres nearer than this are not drawn
inline constexpr float kMaxSigma = 1e6f;           // pixels; larger projections are not drawn
inline constexpr float kMinAlpha = 1.0f / 255.0f;  // a fainter contribution is dropped
inline constexpr float kMaxAlpha = 0.99f;          // one sphere never stops all light
inline constexpr float kMinTransmittance = 1e-4f;  // a pixel darker than this takes no more spheres
inline constexpr float kLog2e = 1.4426950408889634f;

// Rows of the parameter matrix (8 + features, capacity), and of its gradient.
enum Row { kX, kY, kZ, kLogRadius, kOpacityLogit, kRed, kGreen, kBlue, kFeature };

// Planes of a rendered image (5 + features, height, width): colour, then the sums over the pixel's
// spheres of weight x depth and of weight (the silhouette).
enum Plane { kPlaneRed, kPlaneGreen, kPlaneBlue, kPlaneDepth, kPlaneSilhouette, kPlaneFeature };

// Sums over the pixels of one sphere that the backward pass makes; G = alpha dL/dalpha, (dx, dy) is
// the pixel's centre minus the circle's.
enum Sum { kSumRed, kSumGreen, kSumBlue, kSumDepth, kSumG, kSumGdx, kSumGdy, kSumGd2, kSums };

// Statistics of one sphere, if asked for: sums over its pixels of weight and of weight x error, the
// largest weight, and the number of pixels.
enum Statistic { kStatWeight, kStatWeightedError, kStatMaxWeight, kStatPixels, kStatistics };

}  // namespace gsslam
