// The tiles and cells that a circle reaches, found by a warp for its 32 spheres.
#pragma once

#include "common/reduce.cuh"
#include "rasterize/cuda_plan.h"

namespace gsslam {

// A sphere that reaches more tiles than this is handled by its whole warp.
inline constexpr int kTilesAlone = 12;
inline constexpr int kTogether = 4;  // tiles whose counters are touched at a time

struct Circle {
  float mx, my, radius2;
};

// Cells of a tile whose pixel centres' rectangle the circle reaches, as bits. Two kernels must get
// the same bits, so that nothing is left to the compiler's choice of fused operations.
__device__ __forceinline__ uint32_t reached_cells(const Circle& c, int tile_x, int tile_y,
                                                  int width, int height) {
  float dx2[2], dy2[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int x = tile_x * kTile + i * kCellWidth;
    const float left = __fsub_rn(x + 0.5f, c.mx);
    const float right = __fsub_rn(c.mx, min(x + kCellWidth, width) - 0.5f);
    const float d = fmaxf(fmaxf(left, right), 0.0f);
    dx2[i] = x < width ? __fmul_rn(d, d) : INFINITY;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int y = tile_y * kTile + i * kCellHeight;
    const float top = __fsub_rn(y + 0.5f, c.my);
    const float bottom = __fsub_rn(c.my, min(y + kCellHeight, height) - 0.5f);
    const float d = fmaxf(fmaxf(top, bottom), 0.0f);
    dy2[i] = y < height ? __fmul_rn(d, d) : INFINITY;
  }
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kTileCells; ++i)
    if (__fadd_rn(dx2[i % 2], dy2[i / 2]) <= c.radius2) bits |= 1u << i;
  return bits;
}

struct TileRange {
  int x0, y0, columns, tiles;
};

__device__ __forceinline__ int clamp_tile(float pixel, int tiles) {
  return static_cast<int>(fminf(fmaxf(pixel / kTile, 0.0f), static_cast<float>(tiles)));
}

__device__ __forceinline__ TileRange tile_range(const Circle& c, const RasterPlan& p) {
  const float radius = sqrtf(c.radius2);
  const int x0 = clamp_tile(c.mx - radius, p.tiles_x);
  const int x1 = clamp_tile(c.mx + radius + kTile, p.tiles_x);
  const int y0 = clamp_tile(c.my - radius, p.tiles_y);
  const int y1 = clamp_tile(c.my + radius + kTile, p.tiles_y);
  return {x0, y0, x1 - x0, (x1 - x0) * (y1 - y0)};
}

// What a lane's sphere hands to the warp where the warp helps.
struct Owner {
  uint32_t index, first_cell, depth_bits;
};

// Counts the lanes' tiles, with one atomic for each tile that occurs in the warp: neighbouring
// spheres tend to reach the same ones. Lanes without a hit take no part, but must call it.
struct TileCount {
  unsigned same;   // lanes with this lane's tile
  uint32_t first;  // of the first of them: what the counter was

  TileCount() = default;
  __device__ __forceinline__ TileCount(uint32_t* tile_next, bool hit, int tile) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    same = __match_any_sync(kFullWarp, hit ? tile : -1 - lane);
    first = 0;
    if (hit && lane == __ffs(same) - 1)
      first = atomicAdd(&tile_next[tile * kCounterStride], __popc(same));
  }
  // Where the lane comes. Kept apart, so that several atomics are on their way at a time.
  __device__ __forceinline__ uint32_t place() const {
    const unsigned before = (1u << (threadIdx.x & 31)) - 1;
    return __shfl_sync(kFullWarp, first, __ffs(same) - 1) + __popc(same & before);
  }
};

// A tile that a circle reaches, or not if `cells` is 0.
struct Reached {
  int tile;
  uint32_t cells, cells_before;  // bits; number of the circle's cells in the tiles before
};

// Calls visit(owner, reached) for the tiles that each lane's circle reaches, one or kTogether of
// them at a time and in all lanes at once; a lane without a circle passes active = false. All lanes
// of the warp must call it. Returns the number of cells of the lane's own circle.
template <typename Visit>
__device__ __forceinline__ uint32_t visit_tiles(const RasterPlan& p, bool active, const Circle& own,
                                                const Owner& owner, Visit visit) {
  TileRange range{};
  if (active) range = tile_range(own, p);
  uint32_t cells = 0;
  const int alone = range.tiles <= kTilesAlone ? range.tiles : 0;
  const int most = warp_max(alone);
  int x = range.x0, y = range.y0;
  for (int t = 0; t < most; t += kTogether) {
    Reached reached[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t bits = t + k < alone ? reached_cells(own, x, y, p.width, p.height) : 0;
      reached[k] = {y * p.tiles_x + x, bits, cells};
      cells += __popc(bits);
      if (++x == range.x0 + range.columns) {
        x = range.x0;
        ++y;
      }
    }
    visit(owner, reached);
  }
  const unsigned lane = threadIdx.x & 31;
  unsigned large = __ballot_sync(kFullWarp, range.tiles > kTilesAlone);
  while (large) {
    const int from = __ffs(large) - 1;
    large &= large - 1;
    const Circle c{__shfl_sync(kFullWarp, own.mx, from), __shfl_sync(kFullWarp, own.my, from),
                   __shfl_sync(kFullWarp, own.radius2, from)};
    const Owner theirs{__shfl_sync(kFullWarp, owner.index, from),
                       __shfl_sync(kFullWarp, owner.first_cell, from),
                       __shfl_sync(kFullWarp, owner.depth_bits, from)};
    const int x0 = __shfl_sync(kFullWarp, range.x0, from);
    const int y0 = __shfl_sync(kFullWarp, range.y0, from);
    const int columns = __shfl_sync(kFullWarp, range.columns, from);
    const int tiles = __shfl_sync(kFullWarp, range.tiles, from);
    uint32_t before = 0;
    // Exact: the numbers are far smaller than a float's 24 bits can tell apart.
    const float inverse = 1.0f / columns;
    for (int base = 0; base < tiles; base += 32) {
      const int t = base + static_cast<int>(lane), row = static_cast<int>((t + 0.5f) * inverse);
      const int x = x0 + t - row * columns, y = y0 + row;
      const uint32_t bits = t < tiles ? reached_cells(c, x, y, p.width, p.height) : 0;
      uint32_t total;
      const uint32_t mine = before + warp_exclusive_sum(__popc(bits), total);
      const Reached reached[1] = {{y * p.tiles_x + x, bits, mine}};
      visit(theirs, reached);
      before += total;
    }
    if (lane == static_cast<unsigned>(from)) cells = before;
  }
  return cells;
}

}  // namespace gsslam
