// The tiles and cells that circles reach, found by a warp for its 32 spheres.
#pragma once

#include "common/reduce.cuh"
#include "rasterize/cuda_plan.h"

namespace gsslam {

inline constexpr int kTogether = 4;  // rounds whose counters are touched at a time

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

// A tile in reach of a circle, or none where `cells` is 0.
struct Reached {
  int tile;
  uint32_t cells;  // bits
  uint32_t cell;   // number of cells that the warp's circles reach before these, where it is asked
  int owner;       // of the circles that are not empty
};

// What a warp has in shared memory while it visits tiles.
struct TileScratch {
  float4 circles[32];    // centre, radius^2, and what the caller puts beside them
  int4 ranges[32];       // first column and row, columns, first candidate
  uint32_t indices[32];  // of the spheres
  uint32_t cells[33];    // of a circle; or, where places are asked, before it
};

// Cells of a lane's circle, and the number of the warp's before it if places are asked.
struct OwnCells {
  uint32_t before, count;
};

// Calls visit(reached) for the tiles in reach of the warp's 32 circles, kTogether x 32 of them at a
// time. All tiles of all circles' bounding boxes are dealt to the lanes in turn, so that a large
// circle among small ones keeps no lane waiting. All lanes of the warp must call it; one without a
// circle passes active = false.
template <bool kWithPlaces, typename Visit>
__device__ __forceinline__ OwnCells visit_tiles(const RasterPlan& p, TileScratch& scratch,
                                                bool active, const Circle& own, float beside,
                                                uint32_t index, Visit visit) {
  const unsigned lane = threadIdx.x & 31, before_lane = (1u << lane) - 1;
  TileRange range{};
  if (active) range = tile_range(own, p);
  const bool filled = range.tiles > 0;
  uint32_t candidates;
  const uint32_t start = warp_exclusive_sum(range.tiles, candidates);
  const unsigned circles = __ballot_sync(kFullWarp, filled);
  const int slot = __popc(circles & before_lane);
  if (filled) {
    scratch.circles[slot] = {own.mx, own.my, own.radius2, beside};
    scratch.ranges[slot] = {range.x0, range.y0, range.columns, static_cast<int>(start)};
    scratch.indices[slot] = index;
    scratch.cells[slot] = 0;
  }
  __syncwarp();
  uint32_t cells = 0;
  int begun = -1;  // circles whose tiles began, less one
  for (uint32_t base = 0; base < candidates; base += 32 * kTogether) {
    Reached reached[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      reached[k] = {0, 0, 0, 0};
      const uint32_t first = base + 32 * k;
      if (first >= candidates) continue;
      const uint32_t begins_at = start - first;  // wraps around where it began before
      const unsigned begins = warp_or(filled && begins_at < 32 ? 1u << begins_at : 0u);
      const int owner = begun + __popc(begins & (before_lane << 1 | 1));
      begun += __popc(begins);
      const int4 r = scratch.ranges[owner];
      const float4 c = scratch.circles[owner];
      const int place = static_cast<int>(first + lane) - r.w;
      // Exact: the numbers are far smaller than a float's 24 bits can tell apart.
      const int row = static_cast<int>(__fdividef(place + 0.5f, static_cast<float>(r.z)));
      const int x = r.x + place - row * r.z, y = r.y + row;
      const uint32_t bits =
          first + lane < candidates ? reached_cells({c.x, c.y, c.z}, x, y, p.width, p.height) : 0;
      reached[k] = {y * p.tiles_x + x, bits, 0, owner};
      if constexpr (kWithPlaces) {
        uint32_t total;
        reached[k].cell = cells + warp_exclusive_sum(__popc(bits), total);
        cells += total;
        if (place == 0) scratch.cells[owner] = reached[k].cell;
      } else if (bits) {
        atomicAdd(&scratch.cells[owner], __popc(bits));
      }
    }
    visit(reached);
  }
  if (kWithPlaces && lane == 0) scratch.cells[__popc(circles)] = cells;
  __syncwarp();
  OwnCells out{0, filled ? scratch.cells[slot] : 0};
  if (kWithPlaces && filled) out = {out.count, scratch.cells[slot + 1] - out.count};
  return out;
}

}  // namespace gsslam
