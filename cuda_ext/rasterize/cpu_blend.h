// The blending loops, one set for each instruction set.
#pragma once

#include "common/isa.h"
#include "rasterize/cpu_tile.h"

namespace gsslam {

#define GSSLAM_DECLARE(isa)                                                  \
  namespace isa {                                                            \
  void forward_tile(const TileSpheres& tile, float* image);                  \
  void backward_tile(const TileSpheres& tile, const BackwardTile& backward); \
  }
GSSLAM_FOR_EACH_ISA(GSSLAM_DECLARE)
#undef GSSLAM_DECLARE

}  // namespace gsslam
