// Attention's forward pass for Hopper. A block goes through its share of the work: 128 queries
// times a chunk of value columns each. One warp copies tiles of keys and values; two warpgroups
// have 64 queries each, and make the scores of the next tile while the values of this one are
// summed.
#pragma once

#include "attention/attention.h"
#include "attention/cuda_attention_pass.cuh"
#include "attention/hopper_products.cuh"

namespace gsslam {

inline constexpr int kHopperRows = 128, kHopperThreads = 3 * 128;

// Keys of a tile: sums and scores of a warpgroup share its registers.
template <int kChunk>
inline constexpr int kHopperTile = kChunk <= 64 ? 128 : 64;

// Blocks of rows times chunks of columns. The first `whole` have all keys; those behind are split
// by keys in `splits`, so that the last turn of a GPU's multiprocessors is a full one.
struct HopperWork {
  int64_t row_blocks, chunks, blocks, whole;
  int splits;

  constexpr int64_t units() const { return whole + (blocks - whole) * splits; }
};

struct HopperForward {
  AttentionShape shape;
  AttentionMask mask;
  float scale;
  HopperWork work;
  int places;  // of tiles in shared memory
  void* output;
  float* log_sum_exp;
  float* parts;  // (split units, 128 rows, chunk + 1): sums, log-sum-exp
  CUtensorMap query, key, value;
};

// Where a unit of work lies.
struct HopperUnit {
  int64_t item, head, row;  // row: of the block's first query
  int chunk;
  int64_t part;  // -1: the block is whole
  int64_t length, begin;
  int tiles;

  template <int kTile>
  static __device__ HopperUnit of(const HopperForward& a, int64_t unit) {
    const HopperWork& w = a.work;
    HopperUnit u;
    u.part = unit < w.whole ? -1 : unit - w.whole;
    const int64_t block = u.part < 0 ? unit : w.whole + u.part / w.splits;
    u.chunk = static_cast<int>(block % w.chunks);
    const int64_t rows = block / w.chunks;
    u.row = rows % w.row_blocks * kHopperRows;
    const int64_t matrix = rows / w.row_blocks;
    u.item = matrix / a.shape.heads;
    u.head = matrix % a.shape.heads;
    u.length = a.mask.length(u.item, a.shape.keys);
    const int64_t last = min(u.row + kHopperRows, a.shape.queries) - 1;
    const KeyRange range = visible_keys(a.mask, u.length, u.row, last);
    const int64_t all = range.end > range.begin ? (range.end - range.begin + kTile - 1) / kTile : 0;
    const int split = u.part < 0 ? 0 : static_cast<int>(u.part % w.splits);
    const int splits = u.part < 0 ? 1 : w.splits;
    const int64_t first = all * split / splits;
    u.begin = range.begin + first * kTile;
    u.tiles = static_cast<int>(all * (split + 1) / splits - first);
    return u;
  }
};

// Where things lie in shared memory, in bytes behind a multiple of 1024.
template <int kChunk>
struct HopperLayout {
  static constexpr int kTile = kHopperTile<kChunk>;
  static constexpr int kPlaceGroups = kChunk / kGroupColumns;
  static constexpr int kTileGroupBytes = kTile * kGroupBytes;  // a group of columns of a tile
  static constexpr int kQueryGroupBytes = kHopperRows * kGroupBytes;
  static constexpr int kPlaceBytes = kPlaceGroups * kTileGroupBytes;
  static constexpr int kBarrierBytes = 256, kMostPlaces = 8;
  // Of a thread; the multiprocessor has 65,536.
  static constexpr int kCopyingRegisters = kChunk == 256 ? 24 : 40;
  static constexpr int kSummingRegisters = kChunk == 256 ? 240 : 232;
  int groups, key_places, query_bytes;

  __host__ __device__ explicit HopperLayout(int64_t dim)
      : groups(static_cast<int>((dim + kGroupColumns - 1) / kGroupColumns)),
        key_places((groups + kPlaceGroups - 1) / kPlaceGroups),
        query_bytes(groups * kQueryGroupBytes) {}

  // Places that fit; 0 where they are too few.
  int places(int limit) const {
    const int fit = (limit - 1024 - kBarrierBytes - query_bytes) / kPlaceBytes;
    return fit < key_places + 1 ? 0 : fit < kMostPlaces ? fit : kMostPlaces;
  }
  int bytes(int places) const { return 1024 + kBarrierBytes + query_bytes + places * kPlaceBytes; }
};

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
