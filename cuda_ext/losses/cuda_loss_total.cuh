// The loss of an image from the sums of its blocks, in a fixed order.
#pragma once

#include "common/reduce.cuh"
#include "losses/cuda_image_loss.h"

namespace gsslam {

// Known to the first warp. Must be called by all threads of the only block; clears the count of
// measured pixels for the next pass.
__device__ __forceinline__ LossValue total_loss(const LossPlan& p) {
  constexpr int kParts = 6;
  __shared__ double shared[32][kParts];
  __shared__ double parts[kParts];
  const int blocks = kColours * p.blocks_x * p.blocks_y;
  const uint32_t measured = max(*p.measured, 1u);
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
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) dssim += p.dssim[i];
  const double pixels = static_cast<double>(p.width) * p.height, values = kColours * pixels;
  const double part = block_sums<kParts>(
      {sums.l1, sums.depth, sums.silhouette, sums.grad_gain, sums.grad_bias, dssim}, shared);
  if (threadIdx.x < kParts) parts[threadIdx.x] = part;
  __syncthreads();
  if (threadIdx.x == 0) *p.measured = 0;
  LossValue value{};
  if (threadIdx.x >= 32) return value;  // double divisions are slow
  value.l1 = parts[0] / values;
  value.depth = parts[1] / pixels;
  value.silhouette = parts[2] / measured;
  value.grad_gain = parts[3];
  value.grad_bias = parts[4];
  value.dssim = parts[5] / values;
  value.total = (1 - p.weights.ssim) * value.l1 + p.weights.ssim * value.dssim +
                p.weights.depth * value.depth + p.weights.silhouette * value.silhouette;
  return value;
}

}  // namespace gsslam
