// Normal equations of a whole image on the CPU.
#pragma once

#include <vector>

#include "common/vector_bytes.h"
#include "rasterize/cpu_rasterizer.h"
#include "tracking/tracking.h"

namespace gsslam {

class CpuTracking {
 public:
  // Writes kTrackSums sums over the image of what `plan` has projected.
  void normal_equations(const CpuRasterizer& plan, const Observation& seen,
                        const TrackingWeights& weights, double* sums);

  size_t bytes() const { return vector_bytes(pose_splats_, tile_sums_); }

 private:
  std::vector<PoseSplat> pose_splats_;
  std::vector<double> tile_sums_;
};

}  // namespace gsslam
