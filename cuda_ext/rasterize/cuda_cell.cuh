// How a warp walks the list of its cell of 8 x 4 pixels, nearest sphere first.
//
// Lanes copy 32 spheres at a time to shared memory, asynchronously, while the warp works on the 32
// before. Warps never wait for each other.
#pragma once

#include <cuda_pipeline.h>

#include "common/reduce.cuh"
#include "rasterize/cuda_plan.h"

namespace gsslam {

// What a warp has in shared memory.
template <bool kWithPose>
struct CellScratch {
  Splat splats[2][32];
  CellItem items[2][32];
};
template <>
struct CellScratch<true> {
  Splat splats[2][32];
  PoseSplat poses[2][32];
  CellItem items[2][32];
};

// The pixel of a lane, and the part of its cell's list that the warp walks.
struct CellPixel {
  uint32_t begin, end;
  int64_t pixel;  // index in a plane
  float x, y;     // centre
  bool inside;    // the image
};

// `id` is tile x kTileCells + cell.
__device__ __forceinline__ CellPixel cell_pixel(const RasterPlan& p, uint32_t id, uint32_t begin,
                                                uint32_t end) {
  CellPixel c;
  const int tile = static_cast<int>(id / kTileCells), cell = static_cast<int>(id % kTileCells);
  const int lane = threadIdx.x & 31;
  c.begin = begin;
  c.end = end;
  const int x = tile % p.tiles_x * kTile + cell % 2 * kCellWidth + lane % kCellWidth;
  const int y = tile / p.tiles_x * kTile + cell / 2 * kCellHeight + lane / kCellWidth;
  c.x = x + 0.5f;
  c.y = y + 0.5f;
  c.inside = x < p.width && y < p.height;
  c.pixel = static_cast<int64_t>(y) * p.width + x;
  return c;
}

// The cell of a warp. Blocks take the quarters of each tile, longest list first.
__device__ __forceinline__ uint32_t cell_of_warp(const RasterPlan& p, unsigned block) {
  return p.tile_order[block / kBlocksOfTile] * kTileCells + block % kBlocksOfTile * kBlendWarps +
         threadIdx.x / 32;
}

template <typename T>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
  static_assert(sizeof(T) == 32);
  __pipeline_memcpy_async(shared, global, 16);
  __pipeline_memcpy_async(reinterpret_cast<char*>(shared) + 16,
                          reinterpret_cast<const char*>(global) + 16, 16);
}

// Whether the sphere may reach some pixel of the lane's cell: false only if its alpha is under
// kMinAlpha at all of them.
__device__ __forceinline__ bool reaches_cell(const Splat& s, const CellPixel& c) {
  constexpr float kLeastExponent = -7.995f;  // a little under log2(kMinAlpha)
  const int lane = threadIdx.x & 31;
  const float left = c.x - static_cast<float>(lane % kCellWidth) - s.mx;
  const float top = c.y - static_cast<float>(lane / kCellWidth) - s.my;
  const float dx = fmaxf(fmaxf(left, -(left + (kCellWidth - 1))), 0.0f);
  const float dy = fmaxf(fmaxf(top, -(top + (kCellHeight - 1))), 0.0f);
  return fmaf(dx * dx + dy * dy, s.k, s.opacity) >= kLeastExponent;
}

// Moves the spheres that reach the cell to the front, in order, of `count` that a list says may do
// so; returns their number. Lists made with a margin hold many that do not.
__device__ __forceinline__ int keep_reaching(const CellPixel& c, CellScratch<true>& scratch,
                                             int buffer, int count) {
  const int lane = threadIdx.x & 31;
  Splat splat{};
  PoseSplat pose{};
  if (lane < count) {
    splat = scratch.splats[buffer][lane];
    pose = scratch.poses[buffer][lane];
  }
  const bool reaches = lane < count && reaches_cell(splat, c);
  const unsigned kept = __ballot_sync(kFullWarp, reaches);
  __syncwarp();  // all have read what is overwritten now
  if (reaches) {
    const int place = __popc(kept & ((1u << lane) - 1));
    scratch.splats[buffer][place] = splat;
    scratch.poses[buffer][place] = pose;
  }
  __syncwarp();
  return __popc(kept);
}

inline constexpr int kVisits = 8;  // in a group: until it is asked whether a pixel takes light

// Calls visit(buffer, k, place) for every sphere, which then lies in scratch at [buffer][k], in
// groups of up to kVisits, `place` being the one in its group; and alive(buffer, first, number)
// after each group, until it is false for all lanes. Returns the item that comes next. With poses,
// only spheres that reach the cell are visited, and `items` does not say which they are.
template <int kUnrolled, bool kWithPose, typename Visit, typename Alive>
__device__ __forceinline__ uint32_t walk_cell(const RasterPlan& p, const CellPixel& c,
                                              CellScratch<kWithPose>& scratch, Visit visit,
                                              Alive alive) {
  const uint32_t lane = threadIdx.x & 31;
  const auto load = [&](uint32_t position) {
    return position + lane < c.end ? p.items[position + lane] : CellItem{};
  };
  const auto stage = [&](int buffer, uint32_t position, const CellItem& item) {
    if (position + lane < c.end) {
      copy_async(&scratch.splats[buffer][lane], p.splats + item.index);
      if constexpr (kWithPose) copy_async(&scratch.poses[buffer][lane], p.pose_splats + item.index);
      scratch.items[buffer][lane] = item;
    }
    __pipeline_commit();
  };
  uint32_t position = c.begin;
  int buffer = 0;
  stage(0, position, load(position));
  CellItem next = load(position + 32);
  bool go_on = position < c.end;
  while (go_on) {
    stage(buffer ^ 1, position + 32, next);
    next = load(position + 64);
    __pipeline_wait_prior(1);
    __syncwarp();
    const int listed = static_cast<int>(min(32u, c.end - position));
    int count = listed;
    if constexpr (kWithPose) count = keep_reaching(c, scratch, buffer, listed);
    int k = 0;
    do {
      const int first = k;
      if (k + kVisits <= count) {
#pragma unroll kUnrolled
        for (int i = 0; i < kVisits; ++i) visit(buffer, first + i, i);
        k += kVisits;
      } else {
        for (; k < count; ++k) visit(buffer, k, k - first);
      }
      go_on = __any_sync(kFullWarp, alive(buffer, first, k - first));
    } while (go_on && k < count);
    __syncwarp();  // the next copies overwrite what was read here
    position += kWithPose ? listed : k;
    go_on = go_on && position < c.end;
    buffer ^= 1;
  }
  __pipeline_wait_prior(0);
  __syncwarp();
  return position;
}

// One sphere at a lane's pixel.
struct CellContribution {
  float dx, dy, d2;
  float alpha;  // 0 where it is dropped
  bool free;    // neither dropped nor clamped
};

__device__ __forceinline__ float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// alpha / (1 - alpha) of a clamped alpha.
__device__ __forceinline__ float odds(float alpha) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f - alpha));
  return alpha * inverse;
}

__device__ __forceinline__ CellContribution contribution(const Splat& s, float x, float y,
                                                         float transmittance) {
  CellContribution c;
  c.dx = x - s.mx;
  c.dy = y - s.my;
  c.d2 = c.dx * c.dx + c.dy * c.dy;
  const float alpha = exp2_approximate(fmaf(c.d2, s.k, s.opacity));
  const bool kept = alpha >= kMinAlpha && transmittance >= kMinTransmittance;
  c.alpha = kept ? fminf(alpha, kMaxAlpha) : 0.0f;
  c.free = kept && alpha < kMaxAlpha;
  return c;
}

}  // namespace gsslam
