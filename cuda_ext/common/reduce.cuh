// Sums over a warp and over a block, in a fixed order: the same bytes every time.
#pragma once

#include <cstdint>

namespace gsslam {

inline constexpr unsigned kFullWarp = 0xffffffffu;

template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullWarp, value, offset);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, offset));
  return value;
}

__device__ __forceinline__ unsigned warp_or(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_or_sync(kFullWarp, value);
#else
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value |= __shfl_xor_sync(kFullWarp, value, offset);
  return value;
#endif
}

// Sum of the lanes up to this one.
template <typename T>
__device__ __forceinline__ T warp_inclusive_sum(T value) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const T before = __shfl_up_sync(kFullWarp, value, offset);
    if ((threadIdx.x & 31) >= static_cast<unsigned>(offset)) value += before;
  }
  return value;
}

// Sum of the lanes before this one, and of all.
__device__ __forceinline__ uint32_t warp_exclusive_sum(uint32_t value, uint32_t& total) {
  const uint32_t sum = warp_inclusive_sum(value);
  total = __shfl_sync(kFullWarp, sum, 31);
  return sum - value;
}

// Sums kCount values over a warp at once: each step halves the values that a lane holds, so that
// eight values take 9 shuffles instead of 40. Afterwards value[0] of lane l is the sum of value
// number l / (32 / kCount), for kCount a power of two up to 32.
template <typename T, int kCount>
__device__ __forceinline__ void warp_sum_transposed(T (&value)[kCount]) {
  const unsigned lane = threadIdx.x & 31;
  int held = kCount;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (held > 1) {
      held /= 2;
      const bool upper = lane & offset;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        if (i >= held) break;
        const T mine = upper ? value[i + held] : value[i];
        const T other = upper ? value[i] : value[i + held];
        value[i] = mine + __shfl_xor_sync(kFullWarp, other, offset);
      }
    } else {
      value[0] += __shfl_xor_sync(kFullWarp, value[0], offset);
    }
  }
}

// Sum over the block, known to thread 0. `shared` holds one value for each warp.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  value = warp_sum(value);
  __syncthreads();  // `shared` may be in use from a sum before
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  T total{};
  if (threadIdx.x == 0)
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += shared[warp];
  return total;
}

// Sums kCount values over the block at once; value number k of the result is known to thread k.
// `shared` holds kCount values for each warp.
template <int kCount>
__device__ __forceinline__ double block_sums(const double (&value)[kCount],
                                             double (*shared)[kCount]) {
  constexpr int kPadded = kCount <= 1 ? 1 : kCount <= 2 ? 2 : kCount <= 4 ? 4 : 8;
  static_assert(kCount <= kPadded);
  constexpr unsigned kLanes = 32 / kPadded;  // that know the same sum
  double padded[kPadded] = {};
#pragma unroll
  for (int k = 0; k < kCount; ++k) padded[k] = value[k];
  warp_sum_transposed(padded);
  const unsigned lane = threadIdx.x & 31, warps = blockDim.x / 32, k = lane / kLanes;
  if (lane % kLanes == 0 && k < kCount) shared[threadIdx.x / 32][k] = padded[0];
  __syncthreads();
  double total = 0;
  if (threadIdx.x < kCount)
    for (unsigned warp = 0; warp < warps; ++warp) total += shared[warp][threadIdx.x];
  return total;
}

}  // namespace gsslam
