// Sorts the list of each tile by its unique keys: a merge sort by one block, in shared memory as
// far as it reaches. Unique keys make the order the same however the list was filled. Short and
// long lists have a kernel each, as long ones need so much shared memory that few blocks would run.
#include "common/cuda_check.h"
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

// Bitonic sort of a thread's own keys.
template <int kItems>
__device__ __forceinline__ void sort_own(uint64_t (&key)[kItems]) {
#pragma unroll
  for (int size = 2; size <= kItems; size *= 2)
#pragma unroll
    for (int stride = size / 2; stride > 0; stride /= 2)
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        if ((i & stride) == 0) {
          if (i & size)
            order(key[i + stride], key[i]);
          else
            order(key[i], key[i + stride]);
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

// Sorts up to kThreads x kItems keys into `shared`.
template <int kThreads, int kItems>
__device__ __forceinline__ void sort_in_block(const uint64_t* keys, uint32_t count,
                                              uint64_t* shared) {
  uint64_t key[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const uint32_t at = i * kThreads + threadIdx.x;  // any share of the keys will do
    key[i] = at < count ? keys[at] : kLast;
  }
  sort_own(key);
  const uint32_t first = threadIdx.x * kItems;
#pragma unroll
  for (int i = 0; i < kItems; ++i) shared[first + i] = key[i];
  for (uint32_t width = kItems; width < kThreads * kItems; width *= 2) {
    const bool in_warp = 2 * width <= 32 * kItems;  // both runs are the warp's own
    in_warp ? __syncwarp() : __syncthreads();
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
    in_warp ? __syncwarp() : __syncthreads();
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

__device__ __forceinline__ void store_entry(const RasterPlan& p, TileEntry* entry, uint64_t key) {
  const uint32_t cell = static_cast<uint32_t>(key);
  *entry = {p.cell_words[cell], cell};
}

__global__ void __launch_bounds__(kShortThreads) sort_short_lists(const RasterPlan p) {
  __shared__ uint64_t shared[kShort];
  if (p.state->keeps_lists()) return;
  const uint32_t tile = p.tile_order[blockIdx.x];
  const uint32_t start = p.tile_start[tile], count = p.tile_start[tile + 1] - start;
  if (threadIdx.x == 0) p.tile_next[tile * kCounterStride] = 0;  // ready for the next pass
  if (count == 0 || count > kShort) return;
  sort_chunk<kShortThreads, kShortItems>(p.keys + start, count, shared);
  for (uint32_t i = threadIdx.x; i < count; i += kShortThreads)
    store_entry(p, p.entries + start + i, shared[i]);
}

__global__ void __launch_bounds__(kLongThreads) sort_long_lists(const RasterPlan p) {
  extern __shared__ uint64_t shared[];  // kChunk
  if (p.state->keeps_lists()) return;
  const uint32_t tile = p.tile_order[blockIdx.x];
  const uint32_t start = p.tile_start[tile], count = p.tile_start[tile + 1] - start;
  if (count <= kShort) return;
  uint64_t* const keys = p.keys + start;
  TileEntry* const entries = p.entries + start;
  if (count <= kChunk) {
    sort_chunk<kLongThreads, kLongItems>(keys, count, shared);
    for (uint32_t i = threadIdx.x; i < count; i += kLongThreads)
      store_entry(p, entries + i, shared[i]);
    return;
  }
  static_assert(sizeof(TileEntry) == sizeof(uint64_t));
  uint64_t* from = keys;
  uint64_t* to = reinterpret_cast<uint64_t*>(entries);  // until the end, room for keys
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
  for (uint32_t i = threadIdx.x; i < count; i += kLongThreads) store_entry(p, entries + i, from[i]);
}

}  // namespace

void launch_sort(const RasterPlan& plan, cudaStream_t stream) {
  constexpr int kBytes = kChunk * sizeof(uint64_t);
  // More than 48 KB have to be asked for, on every device.
  GSSLAM_CUDA(
      cudaFuncSetAttribute(sort_long_lists, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  sort_long_lists<<<plan.tiles(), kLongThreads, kBytes, stream>>>(plan);
  GSSLAM_LAUNCHED(sort_long_lists);
  sort_short_lists<<<plan.tiles(), kShortThreads, 0, stream>>>(plan);
  GSSLAM_LAUNCHED(sort_short_lists);
}

}  // namespace gsslam
