// The loss of an image from the sums of its blocks, in a fixed order.
#pragma once

#include "common/reduce.cuh"
#include "losses/cuda_image_loss.h"

namespace gsslam {

// Known to thread 0. Must be called by all threads of the only block; clears the count of measured
// pixels for the next pass.
__device__ __forceinline__ LossValue total_loss(const LossPlan& p) {
  __shared__ double shared[32];
  const int blocks = p.blocks_x * p.blocks_y;
  LossSums sums;
  double dssim = 0;
  for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
    const LossSums part = p.sums[i];
    sums.l1 += part.l1;
    sums.depth += part.depth;
    sums.silhouette += part.silhouette;
    sums.grad_gain += part.grad_gain;
    sums.grad_bias += part.grad_bias;
  }
  if (p.weights.ssim != 0)
    for (int i = threadIdx.x; i < kColours * blocks; i += blockDim.x) dssim += p.dssim[i];
  const double pixels = static_cast<double>(p.width) * p.height, values = kColours * pixels;
  LossValue value;
  value.l1 = block_sum(sums.l1, shared) / values;
  value.depth = block_sum(sums.depth, shared) / pixels;
  value.silhouette = block_sum(sums.silhouette, shared) / max(*p.measured, 1u);
  value.grad_gain = block_sum(sums.grad_gain, shared);
  value.grad_bias = block_sum(sums.grad_bias, shared);
  value.dssim = block_sum(dssim, shared) / values;
  value.total = (1 - p.weights.ssim) * value.l1 + p.weights.ssim * value.dssim +
                p.weights.depth * value.depth + p.weights.silhouette * value.silhouette;
  if (threadIdx.x == 0) *p.measured = 0;
  return value;
}

}  // namespace gsslam
