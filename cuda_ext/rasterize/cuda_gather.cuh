// Sums of a sphere's slots and the chain rule, for the gather and for the fused step.
#pragma once

#include "common/reduce.cuh"
#include "rasterize/cuda_plan.h"
#include "rasterize/sphere_matrix.h"

namespace gsslam {

// Adds the first kSums numbers of a sphere's slots up, in order.
__device__ __forceinline__ void sum_slots(const RasterPlan& p, const CudaBackward& back,
                                          uint32_t first, uint32_t cells, float (&total)[kSums]) {
  static_assert(kSums == 8);
#pragma unroll
  for (int k = 0; k < kSums; ++k) total[k] = 0;
  const float* slot = back.sums + static_cast<uint64_t>(first) * back.stride;
  if (back.stride % 4 == 0) {
#pragma unroll 4
    for (uint32_t cell = 0; cell < cells; ++cell, slot += back.stride) {
      const float4 a = reinterpret_cast<const float4*>(slot)[0];
      const float4 b = reinterpret_cast<const float4*>(slot)[1];
      total[0] += a.x, total[1] += a.y, total[2] += a.z, total[3] += a.w;
      total[4] += b.x, total[5] += b.y, total[6] += b.z, total[7] += b.w;
    }
  } else {
    for (uint32_t cell = 0; cell < cells; ++cell, slot += back.stride)
#pragma unroll
      for (int k = 0; k < kSums; ++k) total[k] += slot[k];
  }
}

// One of the numbers behind them.
__device__ __forceinline__ float sum_slots_at(const CudaBackward& back, uint32_t first,
                                              uint32_t cells, int k) {
  float total = 0;
  const float* slot = back.sums + static_cast<uint64_t>(first) * back.stride + k;
  for (uint32_t cell = 0; cell < cells; ++cell, slot += back.stride) total += *slot;
  return total;
}

// The statistics of a sphere in this pass, behind its other numbers.
__device__ __forceinline__ void gather_statistics(const RasterPlan& p, const CudaBackward& back,
                                                  uint32_t first, uint32_t cells,
                                                  float (&pass)[kStatistics]) {
  const int at = kSums + p.num_features;
#pragma unroll
  for (int k = 0; k < kStatistics; ++k) {
    if (k != kStatMaxWeight) {
      pass[k] = sum_slots_at(back, first, cells, at + k);
      continue;
    }
    pass[k] = 0;
    for (uint32_t cell = 0; cell < cells; ++cell)
      pass[k] =
          fmaxf(pass[k], back.sums[static_cast<uint64_t>(first + cell) * back.stride + at + k]);
  }
}

// Sums camera gradient x (world point, 1) over the block; thread k < kPoseSums gets entry k.
template <int kThreads>
__device__ __forceinline__ void store_pose_partial(const float (&camera)[3], const Sphere& sphere,
                                                   double* partials) {
  __shared__ float shared[kThreads / 32][kPoseSums];
  const float world[4] = {sphere.x, sphere.y, sphere.z, 1.0f};
#pragma unroll
  for (int k = 0; k < kPoseSums; ++k) {
    const float sum = warp_sum(camera[k / 4] * world[k % 4]);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x / 32][k] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= kPoseSums) return;
  double total = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) total += shared[warp][threadIdx.x];
  partials[static_cast<int64_t>(blockIdx.x) * kPoseSums + threadIdx.x] = total;
}

}  // namespace gsslam
