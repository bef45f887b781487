// How a warp walks the spheres that reach its cell of 8 x 4 pixels, nearest first.
//
// Lanes look at 32 entries of the tile's list at a time and copy those that reach the cell to
// shared memory, asynchronously, while the warp works on the 32 before. Warps never wait for each
// other.
#pragma once

#include <cuda_pipeline.h>

#include "common/reduce.cuh"
#include "rasterize/cuda_plan.h"

namespace gsslam {

// What a warp has in shared memory.
template <bool kWithPose>
struct CellScratch {
  Splat splats[2][32];
  uint2 ids[2][32];  // index of the sphere, slot of its sums over this cell
};
template <>
struct CellScratch<true> {
  Splat splats[2][32];
  PoseSplat poses[2][32];
  uint2 ids[2][32];
};

// The cell of a warp and the pixel of a lane. Blocks take the quarters of each tile, longest list
// first.
struct CellPixel {
  uint32_t begin, end;  // of the tile's list
  int cell;             // in the tile
  int64_t pixel;        // index in a plane
  float x, y;           // centre
  bool inside;          // the image
};

__device__ __forceinline__ CellPixel cell_pixel(const RasterPlan& p) {
  CellPixel c;
  const int tile = static_cast<int>(p.tile_order[blockIdx.x / kBlocksOfTile]);
  const int lane = threadIdx.x & 31;
  c.begin = p.tile_start[tile];
  c.end = p.tile_start[tile + 1];
  c.cell = blockIdx.x % kBlocksOfTile * kBlendWarps + threadIdx.x / 32;
  const int x = tile % p.tiles_x * kTile + c.cell % 2 * kCellWidth + lane % kCellWidth;
  const int y = tile / p.tiles_x * kTile + c.cell / 2 * kCellHeight + lane / kCellWidth;
  c.x = x + 0.5f;
  c.y = y + 0.5f;
  c.inside = x < p.width && y < p.height;
  c.pixel = static_cast<int64_t>(y) * p.width + x;
  return c;
}

template <typename T>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
  static_assert(sizeof(T) == 32);
  __pipeline_memcpy_async(shared, global, 16);
  __pipeline_memcpy_async(reinterpret_cast<char*>(shared) + 16,
                          reinterpret_cast<const char*>(global) + 16, 16);
}

__device__ __forceinline__ uint32_t slot_of(const TileEntry& entry, int cell) {
  return entry.cell + __popc(entry.word >> kIndexBits & ((1u << cell) - 1));
}

// What is left out of a walk: nothing, or, at the cost of a test for each sphere, what reaches none
// of the pixels of the lane's half of the cell. Halves are 4 x 4 pixels; each goes through its own
// spheres, so that a warp works on two spheres at a time.
enum class CellPart { kWhole, kHalf };

inline constexpr float kLog2MinAlpha = -7.9943534f;

// Bits of the staged spheres that reach the lane's half of the cell.
__device__ __forceinline__ unsigned reaching_half(const CellPixel& c, const Splat* staged,
                                                  int count) {
  const int lane = threadIdx.x & 31;
  const float left = c.x - lane % kCellWidth, top = c.y - lane / kCellWidth;  // pixel centres
  bool in_left = false, in_right = false;
  if (lane < count) {
    const Splat s = staged[lane];
    // A little more than exact: the blending tests alpha itself.
    const float radius2 = __fdividef(kLog2MinAlpha - s.opacity, s.k) * 1.0001f + 1e-3f;
    const float dy = fmaxf(fmaxf(top - s.my, s.my - (top + kCellHeight - 1)), 0.0f);
    const float rest = radius2 - dy * dy;
    constexpr int kHalfWidth = kCellWidth / 2;
    const float dl = fmaxf(fmaxf(left - s.mx, s.mx - (left + kHalfWidth - 1)), 0.0f);
    const float dr =
        fmaxf(fmaxf(left + kHalfWidth - s.mx, s.mx - (left + kCellWidth - 1)), 0.0f);
    in_left = dl * dl <= rest;
    in_right = dr * dr <= rest;
  }
  const unsigned lefts = __ballot_sync(kFullWarp, in_left);
  const unsigned rights = __ballot_sync(kFullWarp, in_right);
  return lane % kCellWidth < kCellWidth / 2 ? lefts : rights;
}

// Calls visit for every sphere, which then lies in scratch at [buffer][k]: visit(buffer, k), or for
// halves visit(buffer, k, reached), where `reached` is false in a half that is through. Calls
// alive() after every 32 entries, until it is false for all lanes. Returns the entry that comes
// next.
template <CellPart kPart = CellPart::kWhole, bool kWithPose, typename Visit, typename Alive>
__device__ __forceinline__ uint32_t walk_cell(const RasterPlan& p, const CellPixel& c,
                                              CellScratch<kWithPose>& scratch, Visit visit,
                                              Alive alive) {
  const uint32_t lane = threadIdx.x & 31;
  const auto load = [&](uint32_t position) {
    return position + lane < c.end ? p.entries[position + lane] : TileEntry{0, 0};
  };
  const auto stage = [&](int buffer, const TileEntry& entry) {
    const bool hit = entry.word >> (kIndexBits + c.cell) & 1;
    const unsigned hits = __ballot_sync(kFullWarp, hit);
    if (hit) {
      const uint32_t k = __popc(hits & ((1u << lane) - 1));
      const uint32_t index = entry.word & (kMaxSpheres - 1);
      copy_async(&scratch.splats[buffer][k], p.splats + index);
      if constexpr (kWithPose) copy_async(&scratch.poses[buffer][k], p.pose_splats + index);
      scratch.ids[buffer][k] = {index, slot_of(entry, c.cell)};
    }
    __pipeline_commit();
    return __popc(hits);
  };
  const auto visit_staged = [&](int buffer, int count) {
    if constexpr (kPart == CellPart::kWhole) {
      for (int k = 0; k < count; ++k) visit(buffer, k);
    } else {
      unsigned left = reaching_half(c, scratch.splats[buffer], count);
      while (__any_sync(kFullWarp, left)) {
        visit(buffer, left ? __ffs(left) - 1 : 0, left != 0);
        left &= left - 1;
      }
    }
  };
  uint32_t position = c.begin;
  int buffer = 0;
  int count = stage(0, load(position));
  TileEntry next = load(position + 32);
  while (position < c.end) {
    const int next_count = stage(buffer ^ 1, next);
    next = load(position + 64);
    __pipeline_wait_prior(1);
    __syncwarp();
    visit_staged(buffer, count);
    __syncwarp();  // the next copies overwrite what was read here
    position += 32;
    if (!__any_sync(kFullWarp, alive())) break;
    buffer ^= 1;
    count = next_count;
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
