// The camera tracker on CUDA: guesses, levels and damped Gauss-Newton iterations of a whole frame,
// queued without waiting. The algorithm is that of gsslam/tracking.py.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/cuda_graph.h"
#include "common/cuda_memory.h"
#include "common/cuda_pose.cuh"
#include "rasterize/cuda_rasterizer.h"
#include "tracking/cuda_tracking.h"

namespace gsslam {

struct CameraState {
  double T_camera_world[12];
  double gain, bias;
};

struct TrackerOptions {
  TrackingWeights weights;
  double exposure_prior, convergence_step;
  double first_damping, least_damping, damping_factor;
  float margin;  // pixels that the image may move before lists are made again
};

struct TrackingLevel {
  Pinhole camera;
  const float* rgb;    // (3, height, width), 0 to 1
  const float* depth;  // (height, width) metres
  int32_t iterations;
};

// Lives on the device; what is left in it is the result.
struct TrackerState {
  CameraState now, best;
  double best_sums[kTrackSums];
  double best_cost, damping;
  uint32_t iteration, converged, failed;
  uint32_t has_best, now_is_best;
  uint32_t stop;      // the level is done: its remaining kernels do nothing
  uint32_t rebuilds;  // of the lists, over the frame
  uint32_t ticket;    // counts blocks, to know the last; 0 between kernels
  Observation seen;
  CameraState chosen;  // among the guesses
  double chosen_cost;
  CameraState first;  // exposure of the frame before, and the only guess where there is one
};

class CudaTracker {
 public:
  CudaTracker(const TrackerOptions& options, int device);

  // Refines the best of some guessed poses on every level, coarsest first. Waits for the result.
  TrackerState estimate(const SphereMatrix& spheres, const std::vector<TrackingLevel>& levels,
                        const std::vector<CameraState>& guesses, cudaStream_t stream);

  size_t bytes() const { return raster_.bytes() + 4 * partials_.size(); }

 private:
  struct Level {
    RasterPlan raster;
    TrackingPlan equations;
    Pinhole camera;
    int32_t iterations;
  };
  void prepare(const SphereMatrix& spheres, const std::vector<TrackingLevel>& levels,
               cudaStream_t stream);
  // With `captured`, iterations are a loop of the graph that ends when the device says so.
  void launch_frame(size_t guesses, bool captured, cudaStream_t stream) const;
  void launch_iterations(size_t level, cudaStream_t stream) const;
  void capture_iterations(size_t level, cudaStream_t stream) const;
  // Normal equations and what follows from them.
  void launch_step(size_t level, const TrackingPlan& equations, const Condition& go_on,
                   cudaStream_t stream) const;

  TrackerOptions options_;
  int device_;
  CudaRasterizer raster_;
  std::vector<Level> levels_, captured_levels_;
  size_t captured_guesses_ = 0;
  DeviceBuffer<float> partials_;
  DeviceBuffer<double> sums_;
  DeviceBuffer<TrackerState> state_;
  DeviceBuffer<CameraState> guesses_;
  DeviceBuffer<TrackingLevel> images_;  // by level
  CudaGraph graph_;
};

}  // namespace gsslam
