// Attention's forward pass for Hopper. A block goes through its share of the work: 128 queries
// times a chunk of value columns each. One warp copies tiles of keys and values; two warpgroups
// have 64 queries each, and make the scores of the next tile while the values of this one are
// summed.
#pragma once

#include "attention/hopper_rows.cuh"

namespace gsslam {

// Copies what a block's units need: queries once, then keys and values of tiles in the order in
// which the warpgroups use them.
template <int kChunk>
__device__ __forceinline__ void copy_units(const HopperForward& a, TileRing ring,
                                           uint32_t query_place, uint32_t query_full,
                                           uint32_t query_empty) {
  using Layout = HopperLayout<kChunk>;
  constexpr int kTile = Layout::kTile;
  const Layout at(a.shape.dim);
  uint32_t query_parity = 0;
  const int64_t units = a.work.units();
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const HopperUnit u = HopperUnit::of<kTile>(a, unit);
    if (u.tiles == 0) continue;
    barrier_wait(query_empty, query_parity ^ 1);
    query_parity ^= 1;
    barrier_expect(query_full, at.query_bytes);
    const int matrix = static_cast<int>(u.item * a.shape.heads + u.head);
    const int key_matrix = static_cast<int>(u.item * a.shape.kv_heads + u.head / a.shape.group());
    for (int g = 0; g < at.groups; ++g)
      copy_tile(query_place + g * Layout::kQueryGroupBytes, a.query, g * kGroupColumns,
                static_cast<int>(u.row), matrix, query_full);
    const auto copy = [&](const CUtensorMap& tensor, int first_group, int groups, int row) {
      ring.wait_empty();
      barrier_expect(ring.full_barrier(), groups * Layout::kTileGroupBytes);
      for (int g = 0; g < groups; ++g)
        copy_tile(ring.address() + g * Layout::kTileGroupBytes, tensor,
                  (first_group + g) * kGroupColumns, row, key_matrix, ring.full_barrier());
      ring.next();
    };
    for (int tile = 0; tile <= u.tiles; ++tile) {
      const int row = static_cast<int>(u.begin) + tile * kTile;
      if (tile < u.tiles)
        for (int g = 0; g < at.groups; g += Layout::kPlaceGroups)
          copy(a.key, g, min(Layout::kPlaceGroups, at.groups - g), row);
      if (tile > 0)
        copy(a.value, u.chunk * Layout::kPlaceGroups, Layout::kPlaceGroups, row - kTile);
    }
  }
}

// What the warpgroups have in common with the copying warp.
struct HopperShared {
  TileRing ring;
  uint32_t query, query_full, query_empty;
};

__device__ __forceinline__ bool first_of_warp() { return threadIdx.x % 32 == 0; }

// Scores of a warpgroup's queries and the ring's next tile of keys, begun and not waited for. The
// loop has no branches inside, since products in different blocks of code would not overlap.
template <typename T, int kChunk, int kSteps>
__device__ __forceinline__ void begin_scores(float (&scores)[kHopperTile<kChunk> / 2],
                                             TileRing& ring, uint32_t query,
                                             const HopperLayout<kChunk>& at) {
  using Layout = HopperLayout<kChunk>;
  ring.wait_full();
  products_begin();
  uint32_t rows = query, keys = ring.address();
  row_product<T, Layout::kTile, false>(scores, factor(rows, 0), factor(keys, 0));
#pragma unroll
  for (int i = 1; i < kSteps; ++i)
    row_product<T, Layout::kTile, true>(scores, factor(rows + 32 * i, 0), factor(keys + 32 * i, 0));
  if constexpr (kSteps == 4)
    for (int g = 1; g < at.groups; ++g) {
      rows += Layout::kQueryGroupBytes;
      keys += Layout::kTileGroupBytes;
      if (g % Layout::kPlaceGroups == 0) {
        ring.next();
        ring.wait_full();
        keys = ring.address();
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i)
        row_product<T, Layout::kTile, true>(scores, factor(rows + 32 * i, 0),
                                            factor(keys + 32 * i, 0));
    }
  products_commit();
  ring.next();
}

// Adds weights times the ring's next tile of values to the sums, not waited for.
template <typename T, int kChunk>
__device__ __forceinline__ void begin_values(float (&sums)[kChunk / 2],
                                             const uint32_t (&weights)[kHopperTile<kChunk> / 4],
                                             TileRing& ring) {
  using Layout = HopperLayout<kChunk>;
  ring.wait_full();
  products_begin();
#pragma unroll
  for (int k = 0; k < Layout::kTile / 16; ++k) {
    const uint32_t a[4] = {weights[4 * k], weights[4 * k + 1], weights[4 * k + 2],
                           weights[4 * k + 3]};
    add_product<T, kChunk>(sums, a,
                           factor(ring.address() + 16 * k * kGroupBytes, Layout::kTileGroupBytes));
  }
  products_commit();
  ring.next();
}

// Hides what queries do not see; a thread has rows `row` and `row` + 8.
template <int kTile>
__device__ __forceinline__ void hide_scores(float (&scores)[kTile / 2], const HopperForward& a,
                                            int64_t length, int64_t first_row, int64_t row,
                                            int64_t key) {
  if (a.scale < 0)
#pragma unroll
    for (float& score : scores) score = -score;
  if (!needs_mask(a.mask, length, a.shape.queries, first_row, 64, key, kTile)) return;
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (!sees(a.mask, length, a.shape.queries, row + i / 2 % 2 * 8, key + column))
      scores[i] = -INFINITY;
  }
}

template <typename T, int kChunk, int kSteps>
__device__ __forceinline__ void attend_units(const HopperForward& a, const HopperShared& shared) {
  using Layout = HopperLayout<kChunk>;
  constexpr int kTile = Layout::kTile;
  const Layout at(a.shape.dim);
  const int group = threadIdx.x / 128;
  const int row = 64 * group + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const uint32_t query = shared.query + 64 * group * kGroupBytes;
  TileRing ring = shared.ring, used = shared.ring;
  const auto release = [&](int places) {
    for (int i = 0; i < places; ++i) {
      if (first_of_warp()) used.release();
      used.next();
    }
  };
  uint32_t query_parity = 0;
  const int64_t units = a.work.units();
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const HopperUnit u = HopperUnit::of<kTile>(a, unit);
    float sums[kChunk / 2], factors[2], lse[2];
    HopperSoftmax softmax{fmaxf(fabsf(a.scale) * kLog2E, 1e-37f)};
#pragma unroll
    for (float& sum : sums) sum = 0;
    if (u.tiles > 0) {
      float scores[kTile / 2];
      uint32_t weights[kTile / 4];
      barrier_wait(shared.query_full, query_parity);
      query_parity ^= 1;
      begin_scores<T, kChunk, kSteps>(scores, ring, query, at);
      products_wait<0>();
      fence_registers(scores);
      release(at.key_places);
      hide_scores<kTile>(scores, a, u.length, u.row + 64 * group, u.row + row, u.begin);
      softmax.take<T, kTile>(scores, weights, factors);
      uint32_t others[kTile / 4];
      // Scores and weights of a tile, while the weights of the one before meet their values. They
      // lie in two arrays in turn: a copy would have to wait for the products that read it.
      const auto turn = [&](uint32_t (&before)[kTile / 4], uint32_t (&now)[kTile / 4], int tile) {
        begin_scores<T, kChunk, kSteps>(scores, ring, query, at);
        begin_values<T, kChunk>(sums, before, ring);
        products_wait<1>();
        fence_registers(scores);
        release(at.key_places);
        hide_scores<kTile>(scores, a, u.length, u.row + 64 * group, u.row + row,
                           u.begin + tile * kTile);
        const bool changed = softmax.take<T, kTile>(scores, now, factors);
        products_wait<0>();
        fence_registers(sums);
        release(1);
        if (changed) multiply_rows(sums, factors);
      };
      int tile = 1;
      for (; tile + 1 < u.tiles; tile += 2) {
        turn(weights, others, tile);
        turn(others, weights, tile + 1);
      }
      const bool last_in_others = tile < u.tiles;
      if (last_in_others) turn(weights, others, tile);
      if (first_of_warp()) barrier_arrive(shared.query_empty);
      if (last_in_others)
        begin_values<T, kChunk>(sums, others, ring);
      else
        begin_values<T, kChunk>(sums, weights, ring);
      products_wait<0>();
      fence_registers(sums);
      release(1);
    }
    softmax.finish(factors, lse);
    multiply_rows(sums, factors);
    store_rows<T, kChunk>(a, u, row, sums, lse);
  }
}

// `kSteps` of 16 channels of queries and keys in a group of columns.
template <typename T, int kChunk, int kSteps>
__global__ void __launch_bounds__(kHopperThreads, 1)
    hopper_forward(const __grid_constant__ HopperForward a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = HopperLayout<kChunk>;
  constexpr int kReaders = 8;  // warps
  extern __shared__ unsigned char memory[];
  const uint32_t base = (shared_address(memory) + 1023) & ~1023u;
  const Layout at(a.shape.dim);
  HopperShared shared;
  shared.query = base;
  shared.ring.places = base + at.query_bytes;
  shared.ring.count = a.places;
  shared.ring.bytes = Layout::kPlaceBytes;
  shared.ring.full = shared.ring.places + a.places * Layout::kPlaceBytes;
  shared.ring.empty = shared.ring.full + 8 * a.places;
  shared.query_full = shared.ring.empty + 8 * a.places;
  shared.query_empty = shared.query_full + 8;
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.places; ++i) {
      barrier_init(shared.ring.full + 8 * i, 1);
      barrier_init(shared.ring.empty + 8 * i, kReaders);
    }
    barrier_init(shared.query_full, 1);
    barrier_init(shared.query_empty, kReaders);
    barrier_init_done();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Layout::kCopyingRegisters));
    if (threadIdx.x == 256)
      copy_units<kChunk>(a, shared.ring, shared.query, shared.query_full, shared.query_empty);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Layout::kSummingRegisters));
    attend_units<T, kChunk, kSteps>(a, shared);
  }
#endif
}

}  // namespace gsslam
