// How a block convolves planes of an image with SSIM's window, on a tile of pixels.
//
// Windows are separable. Down the columns first: a thread walks down one column in global memory
// and adds each value, in registers, to the rows whose windows hold it. Only these sums pass
// through shared memory, once; along the rows, a thread convolves four neighbours at a time, so
// that it reads what their windows share only once.
#pragma once

#include "losses/image_loss.h"

// Sizes may be set from outside, for a sweep.
#ifndef GSSLAM_LOSS_TILE_HEIGHT
#define GSSLAM_LOSS_TILE_HEIGHT 20
#endif
#ifndef GSSLAM_LOSS_GROUPS
#define GSSLAM_LOSS_GROUPS 2
#endif
#ifndef GSSLAM_LOSS_THREADS
#define GSSLAM_LOSS_THREADS 160
#endif

namespace gsslam {

inline constexpr int kLossWidth = 64, kLossHeight = GSSLAM_LOSS_TILE_HEIGHT;
// 148 columns of ten rows, then 320 quads: both go well into 160 threads.
inline constexpr int kLossThreads = GSSLAM_LOSS_THREADS;
inline constexpr int kGroups = GSSLAM_LOSS_GROUPS;  // of rows, each walked by a thread of its own
inline constexpr int kGroupRows = kLossHeight / kGroups;
inline constexpr int kLossReach = kLossWidth + 2 * kWindowRadius;  // columns
inline constexpr int kSumStride = (kLossReach + 3) / 4 * 4;
inline constexpr int kQuad = 4;  // neighbours in a row
inline constexpr int kQuadReach = kQuad + 2 * kWindowRadius;
static_assert(kGroups * kGroupRows == kLossHeight && kLossThreads % 32 == 0);

// Sums down the columns of a tile's windows; the first column is kWindowRadius left of the tile.
template <int kPlanes>
struct ColumnSums {
  alignas(16) float at[kPlanes][kLossHeight][kSumStride];
};

__device__ __forceinline__ float window_weight(int i) {
  // By position, from a constant expression once the loop is unrolled.
  constexpr float w[kWindow] = {kWindowWeights[0], kWindowWeights[1], kWindowWeights[2],
                                kWindowWeights[3], kWindowWeights[4], kWindowWeights[5],
                                kWindowWeights[4], kWindowWeights[3], kWindowWeights[2],
                                kWindowWeights[1], kWindowWeights[0]};
  return w[i];
}

// Where a pixel's values lie.
struct PlainRows {  // of one of some planes
  int width;
  unsigned first;  // of the plane

  __device__ __forceinline__ unsigned row_stride() const { return width; }
  __device__ __forceinline__ unsigned offset(int x) const { return first + x; }
};

// Of the maps: strips of 32 pixels of each of three in turn, so that a pixel's three values lie at
// fixed distances. Colours follow one another, after a strip that stays zero.
struct MapRows {
  static constexpr int kStrip = 32, kMaps = 3;
  int width, height;
  int colour;

  constexpr unsigned row_stride() const { return (width + kStrip - 1) / kStrip * (kStrip * kMaps); }
  constexpr unsigned offset(int x) const {
    return kStrip * kMaps + colour * height * row_stride() + x / kStrip * (kStrip * kMaps) +
           x % kStrip;
  }
};

// One column of a group of rows. load(inside, at, values) fills the values of a pixel, or zeros if
// not `inside` the image: then `at` is 0, so that it can read without a branch and many loads are
// on their way at a time.
template <int kPlanes, typename Rows, typename Load>
__device__ __forceinline__ void convolve_column(const Rows& layout, int height, int column,
                                                int first_row, ColumnSums<kPlanes>& sums,
                                                Load load) {
  const int x = static_cast<int>(blockIdx.x) * kLossWidth - kWindowRadius + column;
  const int top = static_cast<int>(blockIdx.y) * kLossHeight - kWindowRadius + first_row;
  const unsigned rows = x >= 0 && x < layout.width ? height : 0;
  const unsigned offset = layout.offset(x), stride = layout.row_stride();
  float out[kPlanes][kGroupRows] = {};
#pragma unroll
  for (int i = 0; i < kGroupRows + 2 * kWindowRadius; ++i) {
    const unsigned y = top + i;  // huge above the image
    const bool inside = y < rows;
    float value[kPlanes];
    load(inside, inside ? y * stride + offset : 0u, value);
#pragma unroll
    for (int j = 0; j < kGroupRows; ++j)
      if (i >= j && i < j + kWindow)
#pragma unroll
        for (int k = 0; k < kPlanes; ++k) out[k][j] += window_weight(i - j) * value[k];
    const int done = i - 2 * kWindowRadius;
    if (done >= 0)
#pragma unroll
      for (int k = 0; k < kPlanes; ++k) sums.at[k][first_row + done][column] = out[k][done];
  }
}

// All columns of the block's tile. Ends with a barrier.
template <int kPlanes, typename Rows, typename Load>
__device__ __forceinline__ void convolve_columns(const Rows& layout, int height,
                                                 ColumnSums<kPlanes>& sums, Load load) {
#pragma unroll 1
  for (int item = threadIdx.x; item < kGroups * kLossReach; item += kLossThreads)
    convolve_column(layout, height, item % kLossReach, item / kLossReach * kGroupRows, sums, load);
  __syncthreads();
}

// The window along a row, for four neighbours. `row` points to where the first one's begins, at a
// multiple of 16 bytes.
__device__ __forceinline__ void convolve_quad(const float* row, float (&out)[kQuad]) {
  float v[kQuadReach];
#pragma unroll
  for (int i = 0; i + 4 <= kQuadReach; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(row + i);
    v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
  }
  static_assert(kQuadReach % 4 == 2);
  const float2 two = *reinterpret_cast<const float2*>(row + kQuadReach - 2);
  v[kQuadReach - 2] = two.x, v[kQuadReach - 1] = two.y;
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    out[j] = 0;
#pragma unroll
    for (int k = 0; k < kWindow; ++k) out[j] += window_weight(k) * v[j + k];
  }
}

// Four neighbours in a row of the tile, of which `count` lie in the image.
struct Quad {
  int row, column;  // in the tile; of the first
  int x, y, count;

  // Its offset in a plane.
  __device__ __forceinline__ unsigned at(int width) const { return y * width + x; }
};

// Calls visit(quad) for the thread's share of the quads of the block's tile.
template <typename Visit>
__device__ __forceinline__ void for_each_quad(int width, int height, Visit visit) {
  constexpr int kAcross = kLossWidth / kQuad;
#pragma unroll 1
  for (int item = threadIdx.x; item < kLossHeight * kAcross; item += kLossThreads) {
    Quad q;
    q.row = item / kAcross;
    q.column = item % kAcross * kQuad;
    q.x = static_cast<int>(blockIdx.x) * kLossWidth + q.column;
    q.y = static_cast<int>(blockIdx.y) * kLossHeight + q.row;
    q.count = min(kQuad, width - q.x);
    if (q.count > 0 && q.y < height) visit(q);
  }
}

// Whether quads of a plane can be read and written as one: then `count` is always four.
__device__ __forceinline__ bool has_whole_quads(const void* plane, int width, int value_bytes) {
  return width % kQuad == 0 && reinterpret_cast<uintptr_t>(plane) % (kQuad * value_bytes) == 0;
}

// `whole`: see has_whole_quads. Values beyond `count` are zero.
__device__ __forceinline__ void load_quad(const float* from, int count, bool whole,
                                          float (&out)[kQuad]) {
  if (whole) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    return;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j) out[j] = j < count ? from[j] : 0.0f;
}

__device__ __forceinline__ void store_quad(float* to, int count, bool whole,
                                           const float (&v)[kQuad]) {
  if (whole) {
    *reinterpret_cast<float4*>(to) = float4{v[0], v[1], v[2], v[3]};
    return;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j)
    if (j < count) to[j] = v[j];
}

}  // namespace gsslam
