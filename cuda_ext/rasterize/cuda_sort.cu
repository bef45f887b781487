// Sorts the list of each tile by its unique keys and deals it to the tile's cells: one block sorts
// in shared memory as far as it reaches. Unique keys make the order the same however the list was
// filled. Short and long lists have a kernel each, as long ones need so much shared memory that few
// blocks would run.
#include <algorithm>

#include "common/cuda_launch.h"
#include "common/reduce.cuh"
#include "rasterize/cuda_rasterizer.h"

namespace gsslam {
namespace {

constexpr int kShortThreads = 128, kShortItems = 8;  // threads of a block, most keys of a thread
constexpr int kLongThreads = 512, kLongItems = 16;
constexpr uint32_t kShort = kShortThreads * kShortItems, kChunk = kLongThreads * kLongItems;
constexpr uint64_t kLast = ~uint64_t{0};  // sorts behind every key

__device__ __forceinline__ void order(uint64_t& a, uint64_t& b) {
  const uint64_t low = a < b ? a : b, high = a < b ? b : a;
  a = low;
  b = high;
}

// Leaves each key's lower or, in the upper of two lanes, the higher of the pair.
__device__ __forceinline__ uint64_t choose(uint64_t own, uint64_t other, bool upper) {
  return (other < own) != upper ? other : own;
}

// Bitonic sort of a warp's keys, lane by lane: key i of a lane comes before key i + 1 and before
// all keys of the next lane. Runs are merged by comparing the first with the last, the second with
// the last but one and so on, so that no run has to be sorted downwards.
template <int kItems>
__device__ __forceinline__ void sort_in_warp(uint64_t (&key)[kItems]) {
  const unsigned lane = threadIdx.x & 31;
#pragma unroll
  for (int size = 2; size <= 32 * kItems; size *= 2) {
    if (size <= kItems) {
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        if (const int other = i ^ (size - 1); i < other) order(key[i], key[other]);
    } else {
      const int lanes = size / kItems;
      uint64_t other[kItems];
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        other[i] = __shfl_xor_sync(kFullWarp, key[kItems - 1 - i], lanes - 1);
#pragma unroll
      for (int i = 0; i < kItems; ++i) key[i] = choose(key[i], other[i], lane & (lanes / 2));
    }
#pragma unroll
    for (int stride = size / 4; stride > 0; stride /= 2) {
      if (stride >= kItems) {
        const int lanes = stride / kItems;
#pragma unroll
        for (int i = 0; i < kItems; ++i)
          key[i] = choose(key[i], __shfl_xor_sync(kFullWarp, key[i], lanes), lane & lanes);
      } else {
#pragma unroll
        for (int i = 0; i < kItems; ++i)
          if ((i & stride) == 0) order(key[i], key[i + stride]);
      }
    }
  }
}

// How many of the first `diagonal` keys of two sorted runs, merged, come from the first.
__device__ __forceinline__ uint32_t merge_path(const uint64_t* a, uint32_t size_a,
                                               const uint64_t* b, uint32_t size_b,
                                               uint32_t diagonal) {
  uint32_t low = diagonal > size_b ? diagonal - size_b : 0, high = min(diagonal, size_a);
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (a[middle] < b[diagonal - 1 - middle])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Sorts up to kThreads x kItems keys into `shared`: each warp its own in registers, then by merges.
template <int kThreads, int kItems>
__device__ __forceinline__ void sort_in_block(const uint64_t* keys, uint32_t count,
                                              uint64_t* shared) {
  constexpr uint32_t kOfWarp = 32 * kItems;
  uint64_t key[kItems];
  const uint32_t of_warp = threadIdx.x / 32 * kOfWarp;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const uint32_t at = of_warp + i * 32 + threadIdx.x % 32;  // any share of them will do
    key[i] = at < count ? keys[at] : kLast;
  }
  if (of_warp < count) sort_in_warp(key);
  const uint32_t first = threadIdx.x * kItems;
#pragma unroll
  for (int i = 0; i < kItems; ++i) shared[first + i] = key[i];
  for (uint32_t width = kOfWarp; width < count; width *= 2) {
    __syncthreads();
    const uint32_t pair = first & ~(2 * width - 1), diagonal = first - pair;
    const uint64_t *a = shared + pair, *b = a + width;
    uint32_t from_a = merge_path(a, width, b, width, diagonal), from_b = diagonal - from_a;
    uint64_t next_a = from_a < width ? a[from_a] : kLast;
    uint64_t next_b = from_b < width ? b[from_b] : kLast;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (next_a < next_b) {
        key[i] = next_a;
        next_a = ++from_a < width ? a[from_a] : kLast;
      } else {
        key[i] = next_b;
        next_b = ++from_b < width ? b[from_b] : kLast;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kItems; ++i) shared[first + i] = key[i];
  }
  __syncthreads();
}

// The same for up to kThreads x kMost keys, with as few as do for each thread.
template <int kThreads, int kMost, int kItems = 2>
__device__ __forceinline__ void sort_chunk(const uint64_t* keys, uint32_t count, uint64_t* shared) {
  if constexpr (kItems < kMost) {
    if (count > kThreads * kItems) {
      sort_chunk<kThreads, kMost, 2 * kItems>(keys, count, shared);
      return;
    }
  }
  sort_in_block<kThreads, kItems>(keys, count, shared);
}

// Merges runs of `width` keys into runs of twice the width, in global memory.
__device__ void merge_runs(const uint64_t* from, uint64_t* to, uint32_t count, uint32_t width) {
  constexpr uint32_t kPart = 16;
  for (uint32_t first = threadIdx.x * kPart; first < count; first += kLongThreads * kPart) {
    const uint32_t pair = first / (2 * width) * (2 * width), diagonal = first - pair;
    const uint32_t size_a = min(width, count - pair);
    const uint32_t size_b = min(width, count - pair - size_a);
    const uint64_t *a = from + pair, *b = a + size_a;
    uint32_t from_a = merge_path(a, size_a, b, size_b, diagonal), from_b = diagonal - from_a;
    for (uint32_t i = 0; i < kPart && first + i < count; ++i) {
      const bool take_a = from_b >= size_b || (from_a < size_a && a[from_a] < b[from_b]);
      to[first + i] = take_a ? a[from_a++] : b[from_b++];
    }
  }
}

// Numbers of items by warp and cell.
template <int kThreads>
using CellTable = uint32_t[kThreads / 32][kTileCells];

// Cuts a long list into segments, if there is room for them.
__device__ __forceinline__ void cut_list(const RasterPlan& p, uint32_t cell, CellList& list) {
  if (!p.segments || list.size <= p.state->longest_whole) return;
  const uint32_t size = p.state->segment_size;
  const uint32_t count = (list.size + size - 1) / size;
  const uint32_t first = atomicAdd(&p.state->segments, count);
  list.is_long = first + count <= kMaxSegments;
  for (uint32_t i = 0; i < count && first + i < kMaxSegments; ++i) {
    const uint32_t begin = list.first + i * size;
    p.segments[first + i] = {cell, i, list.is_long ? count : 0, begin,
                             min(begin + size, list.first + list.size)};
    p.segment_progress[first + i] = kSegmentOpen;
    p.segments_done[first + i] = 0;
  }
}

// Turns the tile's sorted keys into the lists of its cells, in the same order. The keys are lost.
template <int kThreads>
__device__ __forceinline__ void store_cell_lists(const RasterPlan& p, uint32_t tile, uint64_t* keys,
                                                 uint32_t count, CellTable<kThreads>& table) {
  __shared__ uint32_t starts[kTileCells];
  const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, before_lane = (1u << lane) - 1;
  uint32_t own = 0;  // in lane k < kTileCells, of cell k
  for (uint32_t base = warp * 32; base < count; base += kThreads) {
    const uint32_t i = base + lane;
    uint32_t word = 0;
    if (i < count) {
      const uint32_t cell = static_cast<uint32_t>(keys[i]);
      word = p.cell_words[cell];
      keys[i] = static_cast<uint64_t>(word) << 32 | cell;
    }
#pragma unroll
    for (int k = 0; k < kTileCells; ++k) {
      const uint32_t hits = __popc(__ballot_sync(kFullWarp, word >> (kIndexBits + k) & 1));
      own += lane == k ? hits : 0;
    }
  }
  if (lane < kTileCells) table[warp][lane] = own;
  __syncthreads();
  if (warp == 0) {
    uint32_t size = 0, of_tile;
    for (int w = 0; w < kThreads / 32; ++w) size += lane < kTileCells ? table[w][lane] : 0;
    const uint32_t before = warp_exclusive_sum(size, of_tile);
    uint32_t first = lane == 0 ? atomicAdd(&p.state->items, of_tile) : 0;
    first = __shfl_sync(kFullWarp, first, 0) + before;
    if (lane < kTileCells) {
      CellList list{first, size, 0};
      cut_list(p, tile * kTileCells + lane, list);
      p.cell_lists[tile * kTileCells + lane] = list;
      starts[lane] = first;
    }
  }
  __syncthreads();
  uint32_t next = lane < kTileCells ? starts[lane] : 0;  // item of cell k, in lane k
  for (uint32_t base = 0; base < count; base += kThreads) {
    const uint32_t i = base + threadIdx.x;
    const uint64_t key = i < count ? keys[i] : 0;
    const uint32_t word = static_cast<uint32_t>(key >> 32);
    unsigned hits[kTileCells];
    own = 0;
#pragma unroll
    for (int k = 0; k < kTileCells; ++k) {
      hits[k] = __ballot_sync(kFullWarp, word >> (kIndexBits + k) & 1);
      own = lane == k ? __popc(hits[k]) : own;
    }
    if (lane < kTileCells) table[warp][lane] = own;
    __syncthreads();
    uint32_t at = next;
    if (lane < kTileCells)
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w == static_cast<int>(warp)) at = next;
        next += table[w][lane];
      }
    uint32_t slot = static_cast<uint32_t>(key);
#pragma unroll
    for (int k = 0; k < kTileCells; ++k) {
      const uint32_t start = __shfl_sync(kFullWarp, at, k);
      if (word >> (kIndexBits + k) & 1)
        p.items[start + __popc(hits[k] & before_lane)] = {word & kIndexMask, slot++};
    }
    __syncthreads();  // before the table is used again
  }
}

__global__ void __launch_bounds__(kShortThreads) sort_short_lists(const RasterPlan p) {
  __shared__ uint64_t shared[kShort];
  __shared__ CellTable<kShortThreads> table;
  wait_for_kernel_before();
  if (p.state->keeps_lists()) return;
  const uint32_t tile = p.tile_order[blockIdx.x];
  const uint32_t start = p.tile_start[tile], count = p.tile_start[tile + 1] - start;
  if (threadIdx.x == 0) p.tile_next[tile * kCounterStride] = 0;  // ready for the next pass
  if (count == 0 && threadIdx.x < kTileCells)
    p.cell_lists[tile * kTileCells + threadIdx.x] = {0, 0, 0};
  if (count == 0 || count > kShort) return;
  sort_chunk<kShortThreads, kShortItems>(p.keys + start, count, shared);
  store_cell_lists<kShortThreads>(p, tile, shared, count, table);
}

// Returns where the sorted keys are.
__device__ __forceinline__ uint64_t* sort_long_list(const RasterPlan& p, uint32_t start,
                                                    uint32_t count, uint64_t* shared) {
  uint64_t *from = p.keys + start, *to = p.sort_space + start;
  if (count <= kChunk) {
    sort_chunk<kLongThreads, kLongItems>(from, count, shared);
    return shared;
  }
  for (uint32_t base = 0; base < count; base += kChunk) {
    const uint32_t size = min(kChunk, count - base);
    sort_chunk<kLongThreads, kLongItems>(from + base, size, shared);
    for (uint32_t i = threadIdx.x; i < size; i += kLongThreads) from[base + i] = shared[i];
    __syncthreads();
  }
  for (uint32_t width = kChunk; width < count; width *= 2) {
    merge_runs(from, to, count, width);
    __syncthreads();
    uint64_t* const other = from;
    from = to;
    to = other;
  }
  return from;
}

// Few blocks, as there is often none to sort.
__global__ void __launch_bounds__(kLongThreads) sort_long_lists(const RasterPlan p) {
  extern __shared__ uint64_t shared[];  // kChunk
  __shared__ CellTable<kLongThreads> table;
  wait_for_kernel_before();
  if (p.state->keeps_lists()) return;
  for (int place = blockIdx.x; place < p.tiles(); place += gridDim.x) {
    const uint32_t tile = p.tile_order[place];
    const uint32_t start = p.tile_start[tile], count = p.tile_start[tile + 1] - start;
    if (count < kShort) return;  // so are those that follow
    if (count == kShort) continue;
    uint64_t* const sorted = sort_long_list(p, start, count, shared);
    store_cell_lists<kLongThreads>(p, tile, sorted, count, table);
  }
}

}  // namespace

void launch_sort(const RasterPlan& plan, cudaStream_t stream) {
  constexpr int kBytes = kChunk * sizeof(uint64_t);
  constexpr int kLongBlocks = 264;
  // More than 48 KB have to be asked for, on every device.
  GSSLAM_CUDA(
      cudaFuncSetAttribute(sort_long_lists, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  launch_early("sort_long_lists", sort_long_lists, std::min(plan.tiles(), kLongBlocks),
               kLongThreads, kBytes, stream, plan);
  launch_early("sort_short_lists", sort_short_lists, plan.tiles(), kShortThreads, 0, stream, plan);
}

}  // namespace gsslam
