// Normal equations of a whole image on CUDA.
#pragma once

#include <cuda_runtime.h>

#include "common/cuda_memory.h"
#include "rasterize/cuda_rasterizer.h"
#include "tracking/tracking.h"

namespace gsslam {

// What the kernels share, by value. The observation lies on the device, so that captured graphs
// find it there.
struct TrackingPlan {
  const Observation* seen;
  TrackingWeights weights;
  float* partials;       // (kTrackSums, blocks)
  double* sums;          // (kTrackSums,)
  const uint32_t* stop;  // not zero on the device: do nothing
  const uint32_t* hold;  // the same, or null
#ifdef __CUDACC__
  __device__ bool is_idle() const { return (stop && *stop) || (hold && *hold); }
#endif
};

class CudaTracking {
 public:
  explicit CudaTracking(int device);

  // Writes kTrackSums sums over the image of what `rasterizer` has projected. Waits for them.
  void normal_equations(CudaRasterizer& rasterizer, const Observation& seen,
                        const TrackingWeights& weights, double* sums, cudaStream_t stream);

  size_t bytes() const { return 4 * partials_.size() + 8 * sums_.size(); }

 private:
  int device_;
  DeviceBuffer<Observation> seen_;
  DeviceBuffer<float> partials_;
  DeviceBuffer<double> sums_;
};

void launch_pose_splats(const RasterPlan& raster, cudaStream_t stream);
void launch_normal_equations(const RasterPlan& raster, const TrackingPlan& plan,
                             cudaStream_t stream);
void launch_sum_equations(const RasterPlan& raster, const TrackingPlan& plan, cudaStream_t stream);

}  // namespace gsslam
