// The loss on one band of rows, one set of functions for each instruction set.
#pragma once

#include <cstddef>

#include "common/isa.h"
#include "losses/image_loss.h"
#include "rasterize/constants.h"

namespace gsslam {

inline constexpr int64_t kBandRows = 16;
inline constexpr int64_t kBandReach =
    kBandRows + 2 * kWindowRadius;  // rows that a band's SSIM sees

// A row of a padded map has zeros on both sides, so that convolutions need no edge cases, and
// vectors of any instruction set may be read and written beyond its end.
inline constexpr int64_t kPad = 16;
inline int64_t padded_stride(int64_t width) { return (width + kPad - 1) / kPad * kPad + 2 * kPad; }

// For each colour, three padded maps of (height + 2 kWindowRadius, stride), all zero outside the
// image. With s = x + y and d = x - y of the two images, they are the derivatives of a window's
// SSIM with respect to its mean of s plus that of d, its mean of s^2, and its mean of d^2.
struct SsimMaps {
  float* data;
  int64_t height, stride;

  int64_t map_size() const { return (height + 2 * kWindowRadius) * stride; }
  // The first of the rows that the window of image row y covers.
  float* window(int colour, int map, int64_t y) const {
    return data + (colour * 3 + map) * map_size() + y * stride;
  }
};

// What makes a pixel's share of the gradient out of signs and SSIM derivatives.
struct LossScales {
  float gain, bias;
  float l1, ssim, depth, silhouette;
  float silhouette_threshold;
};

// Floats of scratch memory that a band needs.
inline size_t ssim_scratch_size(int64_t width) {
  return static_cast<size_t>(padded_stride(width)) * (2 * kBandReach + 4);
}

#define GSSLAM_DECLARE(isa)                                                                        \
  namespace isa {                                                                                  \
  /* Pixels of the depth image that are measured. */                                               \
  int64_t count_measured(const float* depth, int64_t pixels);                                      \
  /* Fills the maps on a band and returns its sum of 1 - SSIM. */                                  \
  double ssim_band(const LossImages& images, const LossScales& scales, const SsimMaps& maps,       \
                   int colour, int64_t band, float* scratch);                                      \
  /* Writes gradient and error of a band; `maps.data` is null if there is no SSIM in the loss. */  \
  LossSums gradient_band(const LossImages& images, const LossScales& scales, const SsimMaps& maps, \
                         const LossOutputs& outputs, int64_t band, float* scratch);                \
  }
GSSLAM_FOR_EACH_ISA(GSSLAM_DECLARE)
#undef GSSLAM_DECLARE

}  // namespace gsslam
