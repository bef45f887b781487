// A warpgroup's rows in attention's forward pass for Hopper: their softmax, and what is stored of
// them.
#pragma once

#include "attention/cuda_attention_pass.cuh"
#include "attention/hopper_work.cuh"

namespace gsslam {

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t packed(__half, float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t packed(__nv_bfloat16, float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The softmax of two rows of a thread's warp, as their scores come by; `scale` is positive.
struct HopperSoftmax {
  float scale;
  float reference[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // Turns scores into weights; returns what sums so far must be multiplied with. The reference
  // follows the maximum only from afar, since any one that keeps weights within 2^8 serves.
  template <typename T, int kTile>
  __device__ __forceinline__ bool take(const float (&s)[kTile / 2], uint32_t (&weights)[kTile / 4],
                                       float (&factors)[2]) {
    constexpr float kFar = 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = s[2 * h];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
        most = fmaxf(most, fmaxf(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2)) * scale;
      const float before = reference[h];
      const float next = most > before + kFar || before == -INFINITY ? most : before;
      const float offset = next == -INFINITY ? 0 : next;
      factors[h] = next == before ? 1 : power_of_two(before - offset);
      float total = 0;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        const float x = power_of_two(fmaf(s[4 * n + 2 * h], scale, -offset));
        const float y = power_of_two(fmaf(s[4 * n + 2 * h + 1], scale, -offset));
        total += x + y;
        weights[2 * n + h] = packed(T(), x, y);
      }
      sum[h] = sum[h] * factors[h] + total;
      reference[h] = next;
    }
    return __any_sync(kFullWarp, factors[0] != 1 || factors[1] != 1);
  }

  // Leaves what the sums are to be multiplied with in `factors` and the logs in `lse`.
  __device__ void finish(float (&factors)[2], float (&lse)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h];
      total += __shfl_xor_sync(kFullWarp, total, 1);
      total += __shfl_xor_sync(kFullWarp, total, 2);
      factors[h] = total == 0 ? 0 : 1 / total;
      lse[h] = total == 0 ? -INFINITY : kLn2 * (reference[h] + log2f(total));
    }
  }
};

template <int kCount>
__device__ __forceinline__ void multiply_rows(float (&sums)[kCount], const float (&factors)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] *= factors[i / 2 % 2];
}

// Four threads with a pair of columns of each of four blocks of eight become four threads with a
// block each: stores of 16 bytes instead of 4.
__device__ __forceinline__ uint4 block_of_thread(uint32_t (&w)[4]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  const uint32_t a = __shfl_xor_sync(kFullWarp, odd ? w[0] : w[1], 1);
  const uint32_t b = __shfl_xor_sync(kFullWarp, odd ? w[2] : w[3], 1);
  const uint32_t first = odd ? a : w[0], second = odd ? w[1] : a;
  const uint32_t third = odd ? b : w[2], fourth = odd ? w[3] : b;
  const uint32_t c = __shfl_xor_sync(kFullWarp, upper ? first : third, 2);
  const uint32_t d = __shfl_xor_sync(kFullWarp, upper ? second : fourth, 2);
  return upper ? make_uint4(c, d, third, fourth) : make_uint4(first, second, c, d);
}

// Row `row` of a split unit.
template <int kChunk>
__device__ __forceinline__ void store_part(const HopperForward& a, int64_t part, int row, int h,
                                           const float (&sums)[kChunk / 2], float lse) {
  float* const to = a.parts + (part * kHopperRows + row) * (kChunk + 2);
  if (threadIdx.x % 4 == 0) to[kChunk] = lse;
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n)
    *reinterpret_cast<float2*>(to + 8 * n + threadIdx.x % 4 * 2) =
        make_float2(sums[4 * n + 2 * h], sums[4 * n + 2 * h + 1]);
}

template <typename T, int kChunk>
__device__ __forceinline__ void store_rows(const HopperForward& a, const HopperUnit& u, int row,
                                           const float (&sums)[kChunk / 2], const float (&lse)[2]) {
  const int e = static_cast<int>(a.shape.value_dim), first = u.chunk * kChunk;
  const int64_t head_row = (u.item * a.shape.heads + u.head) * a.shape.queries + u.row;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = row + 8 * h;
    if (u.part >= 0) {
      store_part<kChunk>(a, u.part, r, h, sums, lse[h]);
      continue;
    }
    const bool exists = u.row + r < a.shape.queries;
    if (exists && u.chunk == 0 && threadIdx.x % 4 == 0) a.log_sum_exp[head_row + r] = lse[h];
    T* const output = static_cast<T*>(a.output) + (head_row + r) * e + first;
#pragma unroll
    for (int m = 0; m < kChunk / 32; ++m) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = packed(T(), sums[16 * m + 4 * i + 2 * h], sums[16 * m + 4 * i + 2 * h + 1]);
      const uint4 block = block_of_thread(words);
      const int column = 32 * m + threadIdx.x % 4 * 8;
      if (exists && first + column < e) *reinterpret_cast<uint4*>(output + column) = block;
    }
  }
}

}  // namespace gsslam
