// The mapping loss on CUDA: two kernels, and one that adds up.
#pragma once

#include <cuda_runtime.h>

#include "common/cuda_memory.h"
#include "losses/image_loss.h"

namespace gsslam {

// What a rendering is compared with. Lives on the device, so that captured graphs find it there.
struct LossTarget {
  const float* colour;          // (3, height, width) 0 to 1, or null and
  const uint8_t* colour_bytes;  // the same as 0 to 255
  const float* depth;           // (height, width) metres
  float gain, bias;
};

// What the kernels share, by value.
struct LossPlan {
  const LossTarget* target;
  const uint32_t* stop;  // not null and not zero on the device: do nothing
  int width, height;
  LossWeights weights;
  float l1_scale, ssim_scale, depth_scale;  // what a pixel adds to the gradient by these
  float* maps;         // of each colour in turn, see cpu_loss_band.h and MapRows
  double* dssim;       // by colour and block
  LossSums* sums;      // by colour and block; those of depth with the first colour
  uint32_t* measured;  // pixels of the depth image; 0 between passes
  int blocks_x, blocks_y;

  int blocks() const { return blocks_x * blocks_y; }  // of each colour
  constexpr int64_t pixels() const { return static_cast<int64_t>(width) * height; }
#ifdef __CUDACC__
  __device__ int block() const {  // the one that runs
    return (blockIdx.z * blocks_y + blockIdx.y) * blocks_x + blockIdx.x;
  }
#endif
};

class CudaImageLoss {
 public:
  explicit CudaImageLoss(int device);

  // As CpuImageLoss; waits for the value.
  LossValue evaluate(const LossImages& images, double gain, double bias, const LossWeights& weights,
                     const LossOutputs& outputs, cudaStream_t stream);

  // The parts of it, for fused steps.
  LossPlan prepare(int width, int height, const LossWeights& weights, const LossTarget* target,
                   const uint32_t* stop, cudaStream_t stream);

  size_t bytes() const { return 4 * maps_.size() + 8 * dssim_.size() + 40 * sums_.size(); }

 private:
  int device_;
  DeviceBuffer<LossTarget> target_;
  DeviceBuffer<LossValue> value_;
  DeviceBuffer<float> maps_;
  DeviceBuffer<double> dssim_;
  DeviceBuffer<LossSums> sums_;
  DeviceBuffer<uint32_t> measured_;
};

void launch_loss(const LossPlan& plan, const float* rendered, const LossOutputs& outputs,
                 cudaStream_t stream);
void launch_loss_value(const LossPlan& plan, LossValue* value, cudaStream_t stream);

}  // namespace gsslam
