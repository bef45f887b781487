// Steps of the map's optimisation on CUDA: forward, loss, backward, Adam on spheres, keyframe pose
// and exposure. A run of steps is queued without waiting; each is one captured graph.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "common/cuda_graph.h"
#include "common/cuda_memory.h"
#include "common/cuda_pose.cuh"
#include "losses/cuda_image_loss.h"
#include "optimizer/cuda_adam.h"
#include "rasterize/cuda_rasterizer.h"

namespace gsslam {

// Unknowns of a keyframe: twist, gain, bias.
inline constexpr int kKeyframeUnknowns = 8;

struct MappingKeyframe {
  double T_camera_world[12];
  double gain, bias;
  double moment1[kKeyframeUnknowns], moment2[kKeyframeUnknowns];
  int64_t steps;
  const uint8_t* rgb;  // (3, height, width)
  const float* depth;  // (height, width)
};

struct MappingTask {
  uint32_t keyframe;  // by its place in the run's list
  uint32_t refine;    // whether its pose and exposure are stepped too
};

struct MappingOptions {
  Pinhole camera;
  LossWeights weights;
  double beta1, beta2, epsilon;
  double pose_rate, exposure_rate;
};

// What the last steps of a run collect of each sphere.
struct MappingStatistics {
  float* kept;     // (kStatistics, capacity) on the device
  float decay;     // see keep_statistics
  uint32_t steps;  // how many of the last steps
};

// Lives on the device.
struct MappingState {
  LossTarget target;
  uint32_t step, steps;  // done and to be done
};

// What the kernels of a step share, by value.
struct MappingPlan {
  RasterPlan raster;
  CudaBackward back;
  LossPlan loss;
  LossOutputs loss_outputs;
  AdamSpheres spheres;
  AdamRates rates;
  float* image;
  double* pose_partials;
  MappingState* state;
  MappingKeyframe* keyframes;
  MappingTask* tasks;
  double* losses;     // by step
  float* statistics;  // (kStatistics, capacity) or null: not collected
  float decay;        // of the statistics kept
};

class CudaMapping {
 public:
  // learning_rates: of each row of the parameters, on the host.
  CudaMapping(const MappingOptions& options, const std::vector<float>& learning_rates, int device);

  // Writes the (5, height, width) image of a view, with the buffers of the steps: they never draw
  // at the same time.
  void render(const SphereMatrix& spheres, const View& view, float* image, cudaStream_t stream);

  // Takes the steps, one for each task, and returns the loss before each. `spheres` lie on the
  // device (its gradient and learning rates are not used); keyframes come back stepped. Waits.
  std::vector<double> run(AdamSpheres spheres, std::vector<MappingKeyframe>& keyframes,
                          const std::vector<MappingTask>& tasks,
                          const MappingStatistics& statistics, cudaStream_t stream);

  const float* image() const { return image_.get(); }
  size_t bytes() const;  // of device memory

 private:
  // Plans both kinds of steps: without statistics, and with them.
  void prepare(const AdamSpheres& spheres, size_t keyframes, size_t tasks,
               const MappingStatistics& statistics, cudaStream_t stream);
  void launch_step(const MappingPlan& plan, cudaStream_t stream) const;
  void take_step(bool with_statistics, cudaStream_t stream);

  MappingOptions options_;
  int device_;
  CudaRasterizer raster_;
  CudaImageLoss loss_;
  CudaAdam adam_;
  DeviceBuffer<float> learning_rates_, image_, grad_image_, error_;
  DeviceBuffer<MappingState> state_;
  DeviceBuffer<MappingKeyframe> keyframes_;
  DeviceBuffer<MappingTask> tasks_;
  DeviceBuffer<double> losses_;
  MappingPlan plans_[2]{}, captured_[2]{};  // without and with statistics
  CudaGraph graphs_[2];
};

}  // namespace gsslam
