// Normal equations of a whole image on the CPU.
#pragma once

#include <vector>

#include "common/vector_bytes.h"
#include "rasterize/cpu_rasterizer.h"
#include "tracking/tracking.h"

namespace gsslam {

class CpuTracking {
 public:
  // Writes kTrackSums sums over the pixels of what `plan` has projected that take part.
  void normal_equations(const CpuRasterizer& plan, const Observation& seen,
                        const TrackingWeights& weights, const PatchSampling& sampling,
                        double* sums);

  // The same without the derivatives: Hessian and gradient are zero.
  void residuals(const CpuRasterizer& plan, const Observation& seen, const TrackingWeights& weights,
                 const PatchSampling& sampling, double* sums);

  size_t bytes() const { return vector_bytes(pose_splats_, tile_sums_); }

 private:
  template <typename TileSums>
  void sum_tiles(const CpuRasterizer& plan, double* sums, TileSums tile_sums);

  std::vector<PoseSplat> pose_splats_;
  std::vector<double> tile_sums_;
};

}  // namespace gsslam
