// One tile of the image on the CPU: what its blending loops read and write.
#pragma once

#include <cstdint>

#include "rasterize/math.h"

namespace gsslam {

// The spheres of one tile, nearest first.
struct TileSpheres {
  const Splat* splats;    // by rank
  const float* radius2;   // by rank
  const float* features;  // by rank, num_features each
  const uint32_t* ranks;  // (count,)
  const uint32_t* slots;  // (count,) where the tile's sums of that sphere go
  uint32_t count;
  int x0, y0;         // first pixel
  int width, height;  // of the image
  int num_features;
  uint32_t* block_lists;  // scratch, kMaxBlocks x count
};

inline constexpr int kMaxBlocks = 64;

struct BackwardTile {
  const float* image;       // (5 + D, height, width) what the forward pass made
  const float* grad_image;  // the same shape: dL / d image
  const float* error;       // (height, width) for the statistics, or null
  float* sums;              // (slots, stride)
  int stride;               // kSums + D + (statistics ? kStatistics : 0)
};

}  // namespace gsslam
