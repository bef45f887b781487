// Normal equations of the camera pose and the exposure, from the rendered map and one RGB-D image.
#pragma once

#include <cstdint>

namespace gsslam {

// Unknowns: the twist (translation, rotation) of exp(xi) T_camera_world, then gain and bias.
inline constexpr int kUnknowns = 8;
inline constexpr int kHessian = kUnknowns * (kUnknowns + 1) / 2;  // upper triangle, row by row

// Square of the depth residual, in sigmas, where its weight has fallen to a quarter.
inline constexpr float kDepthScale2 = 9.0f;

// What a tile, and in the end the image, sums up.
enum TrackingSum {
  kTrackHessian = 0,
  kTrackGradient = kHessian,                // kUnknowns
  kTrackCost = kTrackGradient + kUnknowns,  // robust cost
  kTrackPixels,                             // pixels that took part
  kTrackColourSquares,                      // sum over them and the colours of residual^2
  kTrackDepthPixels,                        // those with a measured depth
  kTrackDepthSquares,                       // metres^2
  kTrackSums
};

struct Observation {
  const float* rgb;    // (3, height, width), 0 to 1
  const float* depth;  // (height, width) metres; anything not positive and finite: not measured
  float gain, bias;    // observed = gain * rendered + bias
};

// Which pixels take part: patches of kPatch x kPatch pixels, of which one in `stride` is taken,
// with a shift of `skew` patches from each row of patches to the next.
struct PatchSampling {
  int stride, skew;

  constexpr bool takes(int patch_column, int patch_row) const {
    return (patch_column + skew * patch_row) % stride == 0;
  }
};

inline constexpr int kPatch = 4;

struct TrackingWeights {
  float huber_colour;  // residual where the weight starts to fall; also its unit
  float depth_weight;  // of a depth residual of one sigma, against colour of one unit
  float sigma_base;    // depth noise: base + quadratic z^2, metres
  float sigma_quadratic;
  float silhouette_threshold;  // pixels covered less take no part
};

// A splat's constants for the pose Jacobian, by rank.
struct alignas(32) PoseSplat {
  float a, b, c, e, q0, q1;  // AlphaJacobian
  float x, y;                // camera point; its z is in the Splat
};

}  // namespace gsslam
