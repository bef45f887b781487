// The update of one chunk of spheres, one function for each instruction set.
#pragma once

#include "common/isa.h"
#include "optimizer/adam.h"

namespace gsslam {

#define GSSLAM_DECLARE(isa)                                                                \
  namespace isa {                                                                          \
  AdamCounts adam_chunk(const AdamSpheres& spheres, const AdamRates& rates, size_t chunk); \
  }
GSSLAM_FOR_EACH_ISA(GSSLAM_DECLARE)
#undef GSSLAM_DECLARE

}  // namespace gsslam
