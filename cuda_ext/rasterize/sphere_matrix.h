// Where the rasterisers find the spheres of a map.
#pragma once

#include <cstdint>

#include "rasterize/math.h"

namespace gsslam {

// The first `count` columns of a row-major (8 + features, capacity) matrix.
struct SphereMatrix {
  const float* data;
  int64_t capacity;
  int64_t count;

  GSSLAM_HD Sphere at(int64_t i) const {
    return {data[kX * capacity + i], data[kY * capacity + i], data[kZ * capacity + i],
            data[kLogRadius * capacity + i], data[kOpacityLogit * capacity + i]};
  }
};

}  // namespace gsslam
