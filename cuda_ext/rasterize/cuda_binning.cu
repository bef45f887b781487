// Projection, and distribution to the lists of the tiles.
#include <algorithm>

#include "common/cuda_launch.h"
#include "common/cuda_memory.h"
#include "rasterize/cuda_rasterizer.h"
#include "rasterize/cuda_tiles.cuh"

namespace gsslam {
namespace {

constexpr int kScanThreads = 1024;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kBinBlocks = 4;  // as many as fit on a multiprocessor of compute capability 7.5
#else
constexpr int kBinBlocks = 6;  // on a multiprocessor, so that 200,000 spheres are one wave
#endif

__device__ __forceinline__ PoseSplat pose_splat(const View& view, const Splat& splat) {
  const SplatGeometry g = geometry_of(view, splat);
  const AlphaJacobian j = alpha_jacobian(view, g);
  return {j.a, j.b, j.c, j.e, j.q0, j.q1, g.x, g.y};
}

__device__ __forceinline__ void load_view(const RasterPlan& p, View& view) {
  if (threadIdx.x < sizeof(View) / 4)
    reinterpret_cast<uint32_t*>(&view)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&p.state->view)[threadIdx.x];
}

// Counters of the tiles' entries. A block counts in shared memory, where it holds them all: atomics
// on scattered global addresses take a multiprocessor as long as its arithmetic.
template <bool kShared>
struct TileCounters {
  uint32_t* counters;
  int stride;

  __device__ __forceinline__ TileCounters(const RasterPlan& p, uint32_t* shared)
      : counters(kShared ? shared : p.tile_next), stride(kShared ? 1 : kCounterStride) {
    if constexpr (kShared)
      for (int tile = threadIdx.x; tile < p.tiles(); tile += kBinThreads) shared[tile] = 0;
  }
  // Returns the number before.
  __device__ __forceinline__ uint32_t add(int tile) const {
    return atomicAdd(&counters[tile * stride], 1u);
  }
  // Adds the block's numbers to those of all; its counters are then what those were before.
  __device__ __forceinline__ void reserve(const RasterPlan& p) const {
    if constexpr (!kShared) return;
    __syncthreads();
    for (int tile = threadIdx.x; tile < p.tiles(); tile += kBinThreads)
      if (const uint32_t own = counters[tile])
        counters[tile] = atomicAdd(&p.tile_next[tile * kCounterStride], own);
    __syncthreads();
  }
};

// Beyond this, too few blocks would fit on a multiprocessor.
constexpr int kMostSharedTiles = 6144;

__device__ __forceinline__ void store_splat(const RasterPlan& p, const View& view, Splat splat,
                                            float radius2, int64_t i) {
  splat.opacity = log2f(splat.opacity);
  splat.r = p.parameters[kRed * p.capacity + i];
  splat.g = p.parameters[kGreen * p.capacity + i];
  splat.b = p.parameters[kBlue * p.capacity + i];
  p.splats[i] = splat;
  p.radius2[i] = radius2;
  if (p.pose_splats) p.pose_splats[i] = pose_splat(view, splat);
  if (p.listed_at) p.listed_at[i] = {splat.mx, splat.my};
  for (int d = 0; d < p.num_features; ++d)
    p.features[i * p.num_features + d] = p.parameters[(kFeature + d) * p.capacity + i];
}

template <bool kShared>
__global__ void __launch_bounds__(kBinThreads, kBinBlocks) project_spheres(const RasterPlan p) {
  extern __shared__ uint32_t tile_counts[];
  __shared__ uint32_t warp_cells[kBinWarps];
  __shared__ TileScratch scratches[kBinWarps];
  __shared__ View view;
  wait_for_kernel_before();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBinThreads + threadIdx.x;
  // Loaded before it is known to be needed, so that latencies overlap.
  Sphere sphere{};
  if (i < p.max_count) sphere = SphereMatrix{p.parameters, p.capacity, p.max_count}.at(i);
  load_view(p, view);
  const uint32_t count = p.state->count;
  const float margin = p.state->margin;
  if (p.state->keeps_lists() || static_cast<int64_t>(blockIdx.x) * kBinThreads >= count) return;
  const TileCounters<kShared> counters(p, tile_counts);
  __syncthreads();
  Splat splat{};
  Circle circle{0, 0, -1};
  if (i < count) {
    circle.radius2 = project_sphere(view, sphere, splat);
    circle.mx = splat.mx;
    circle.my = splat.my;
  }
  // Written so that NaN fails.
  const bool active = circle.radius2 >= 0 && fabsf(circle.mx) < 1e9f && fabsf(circle.my) < 1e9f;
  if (active && margin > 0) {
    const float radius = sqrtf(circle.radius2) + margin;
    circle.radius2 = radius * radius;
  }
  if (active) store_splat(p, view, splat, circle.radius2, i);
  const int warp = threadIdx.x / 32;
  const OwnCells cells = visit_tiles<false>(p, scratches[warp], active, circle, 0.0f, 0,
                                            [&](const Reached(&reached)[kTogether]) {
#pragma unroll
                                              for (const Reached& r : reached)
                                                if (r.cells) counters.add(r.tile);
                                            });
  counters.reserve(p);
  if (i < count) p.cell_counts[i] = cells.count;
  const uint32_t of_warp = warp_sum(cells.count);
  if (threadIdx.x % 32 == 0) warp_cells[warp] = of_warp;
  const unsigned visible = __syncthreads_count(cells.count > 0);
  if (threadIdx.x < kBinWarps) {
    uint32_t before = 0;
    for (int w = 0; w < static_cast<int>(threadIdx.x); ++w) before += warp_cells[w];
    p.warp_cells[blockIdx.x * kBinWarps + threadIdx.x] = before;
    if (threadIdx.x == kBinWarps - 1) p.block_cells[blockIdx.x] = before + warp_cells[threadIdx.x];
  }
  if (threadIdx.x == 0 && visible) atomicAdd(&p.state->visible, visible);
}

__device__ __forceinline__ bool reaches_image(const Circle& c, const RasterPlan& p) {
  const float dx = fmaxf(fmaxf(0.5f - c.mx, c.mx - (p.width - 0.5f)), 0.0f);
  const float dy = fmaxf(fmaxf(0.5f - c.my, c.my - (p.height - 0.5f)), 0.0f);
  return dx * dx + dy * dy <= c.radius2;
}

__device__ __forceinline__ void refresh_sphere(const RasterPlan& p, const View& view,
                                               const Sphere& sphere, uint32_t cells, int64_t i) {
  Splat splat{};
  const float radius2 = project_sphere(view, sphere, splat);
  const Circle circle{splat.mx, splat.my, radius2};
  const bool active = radius2 >= 0 && fabsf(splat.mx) < 1e9f && fabsf(splat.my) < 1e9f;
  bool stale = false;
  if (cells == 0) {
    stale = active && reaches_image(circle, p);
  } else if (!active) {
    p.splats[i].opacity = -INFINITY;  // not drawn
  } else {
    const float dx = splat.mx - p.listed_at[i].x, dy = splat.my - p.listed_at[i].y;
    const float reach = sqrtf(dx * dx + dy * dy) + sqrtf(radius2);
    stale = !(reach * reach <= p.radius2[i]);
    splat.opacity = log2f(splat.opacity);
    splat.r = p.splats[i].r;
    splat.g = p.splats[i].g;
    splat.b = p.splats[i].b;
    p.splats[i] = splat;
    if (p.pose_splats) p.pose_splats[i] = pose_splat(view, splat);
  }
  if (stale) p.state->stale = 1;
}

// Projects the listed spheres from a new pose, and says that the lists are stale if one has left
// the circle that it was listed with or another has come into view. The order of the lists stays.
__global__ void __launch_bounds__(kBinThreads)
    refresh_spheres(const RasterPlan p, const Condition make_lists) {
  __shared__ View view;
  wait_for_kernel_before();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBinThreads + threadIdx.x;
  Sphere sphere{};
  uint32_t cells = 0;
  if (i < p.max_count) {
    sphere = SphereMatrix{p.parameters, p.capacity, p.max_count}.at(i);
    cells = p.cell_counts[i];
  }
  load_view(p, view);
  const uint32_t count = p.state->count;
  const bool idle = p.state->overflow || p.state->halt || p.state->stale;
  __syncthreads();
  if (!idle && i < count) refresh_sphere(p, view, sphere, cells, i);
  // The last block to come here decides.
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&p.state->ticket, 1u) != gridDim.x - 1) return;
  p.state->ticket = 0;
  __threadfence();
  make_lists.set(!const_cast<const volatile RasterState*>(p.state)->overflow &&
                 !const_cast<const volatile RasterState*>(p.state)->halt &&
                 const_cast<const volatile RasterState*>(p.state)->stale);
}

// Replaces each thread's number by the sum of those of the threads before it; returns the sum of
// all. `shared` holds one for each warp.
__device__ __forceinline__ uint64_t scan_block(uint64_t& value, uint64_t (&shared)[32]) {
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const uint64_t own = value;
  __syncthreads();  // `shared` may be in use from a scan before
  value = warp_inclusive_sum(value);
  if (lane == 31) shared[warp] = value;
  __syncthreads();
  static_assert(kScanThreads == 1024);
  if (warp == 0) shared[lane] = warp_inclusive_sum(shared[lane]);
  __syncthreads();
  value += (warp > 0 ? shared[warp - 1] : 0) - own;
  return shared[31];
}

// Tiles by the length of their lists, so that no long one starts last.
struct TileClasses {
  static constexpr int kClasses = 256, kClassSize = 16;
  uint32_t starts[kClasses];  // longest first

  static __device__ __forceinline__ int of(uint32_t length) {
    return kClasses - 1 - static_cast<int>(min(length / kClassSize, kClasses - 1u));
  }
  __device__ __forceinline__ void clear() {
    if (threadIdx.x < kClasses) starts[threadIdx.x] = 0;
  }
  __device__ __forceinline__ void count(uint32_t length) { atomicAdd(&starts[of(length)], 1u); }
  // Counts to starts, by one warp.
  __device__ __forceinline__ void scan() {
    uint32_t before = 0, total;
    for (int c = threadIdx.x; c < kClasses; c += 32) {
      starts[c] = before + warp_exclusive_sum(starts[c], total);
      before += total;
    }
  }
};

// A list is long if it has so many items, and so many times what a warp has on average.
constexpr uint32_t kLeastLong = 768, kLongRatio = 16;
constexpr uint32_t kLeastSegment = 384, kSegmentRatio = 4;

// Turns counts into starts, checks that everything fits, and orders the tiles.
__global__ void __launch_bounds__(kScanThreads) scan_counts(const RasterPlan p) {
  constexpr int kOwn = 4;  // neighbouring tiles of a thread
  __shared__ uint64_t shared[32];
  __shared__ TileClasses classes;
  wait_for_kernel_before();
  if (p.state->keeps_lists()) return;
  const int tiles = p.tiles();
  const int blocks = static_cast<int>((p.state->count + kBinThreads - 1) / kBinThreads);
  uint64_t entries = 0, cells = 0;
  classes.clear();
  for (int base = 0; base < blocks; base += kScanThreads) {
    const int block = base + threadIdx.x;
    uint64_t before = block < blocks ? p.block_cells[block] : 0;
    const uint64_t in_chunk = scan_block(before, shared);
    if (block < blocks) p.block_cells[block] = static_cast<uint32_t>(cells + before);
    cells += in_chunk;
  }
  __syncthreads();  // the classes are clear, also where there are no blocks
  for (int base = 0; base < tiles; base += kOwn * kScanThreads) {
    const int first = base + kOwn * threadIdx.x;
    uint32_t own[kOwn];
    uint64_t before = 0;
#pragma unroll
    for (int k = 0; k < kOwn; ++k)
      before += own[k] = first + k < tiles ? p.tile_next[(first + k) * kCounterStride] : 0;
    const uint64_t in_chunk = scan_block(before, shared);
    before += entries;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (first + k >= tiles) break;
      p.tile_start[first + k] = static_cast<uint32_t>(before);
      p.tile_next[(first + k) * kCounterStride] = static_cast<uint32_t>(before);
      classes.count(own[k]);
      before += own[k];
    }
    entries += in_chunk;
  }
  const bool fits = entries <= p.max_entries && cells <= p.max_cells;
  if (threadIdx.x == 0) {
    p.tile_start[tiles] = static_cast<uint32_t>(entries);
    p.state->entries = entries;
    p.state->cells = cells;
    p.state->items = p.state->segments = 0;
    const uint64_t of_warp = cells / p.warp_slots;
    p.state->longest_whole = static_cast<uint32_t>(max(uint64_t{kLeastLong}, kLongRatio * of_warp));
    p.state->segment_size =
        static_cast<uint32_t>(max(uint64_t{kLeastSegment}, kSegmentRatio * of_warp));
    if (!fits) p.state->overflow = 1;
  }
  __syncthreads();
  if (threadIdx.x < 32) classes.scan();
  __syncthreads();
  for (int tile = threadIdx.x; tile < tiles; tile += kScanThreads) {
    const uint32_t length = p.tile_start[tile + 1] - p.tile_start[tile];
    p.tile_order[atomicAdd(&classes.starts[TileClasses::of(length)], 1u)] = tile;
  }
  if (fits) return;
  __syncthreads();
  for (int tile = threadIdx.x; tile <= tiles; tile += kScanThreads) {
    p.tile_start[tile] = 0;
    if (tile < tiles) p.tile_next[tile * kCounterStride] = 0;
  }
}

template <bool kShared>
__global__ void __launch_bounds__(kBinThreads, kBinBlocks) fill_tiles(const RasterPlan p) {
  extern __shared__ uint32_t tile_counts[];
  __shared__ TileScratch scratches[kBinWarps];
  wait_for_kernel_before();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBinThreads + threadIdx.x;
  const int warp = threadIdx.x / 32;
  uint32_t own_cells = 0;
  Splat splat{};
  float radius2 = 0;
  if (i < p.max_count) {
    own_cells = p.cell_counts[i];
    splat = p.splats[i];
    radius2 = p.radius2[i];
  }
  const uint32_t first = p.block_cells[blockIdx.x] + p.warp_cells[blockIdx.x * kBinWarps + warp];
  const uint32_t count = p.state->count;
  if (p.state->keeps_lists() || static_cast<int64_t>(blockIdx.x) * kBinThreads >= count) return;
  if (i >= count) own_cells = 0;
  TileScratch& scratch = scratches[warp];
  const auto store = [&](const Reached& r, uint32_t at) {
    const uint32_t cell = first + r.cell, index = scratch.indices[r.owner];
    const uint32_t depth_bits = __float_as_uint(scratch.circles[r.owner].w);
    // Positive floats sort like their bits, and cells like the spheres' indices.
    p.keys[at] = static_cast<uint64_t>(depth_bits) << 32 | cell;
    p.cell_words[cell] = index | r.cells << kIndexBits;
  };
  const TileCounters<kShared> counters(p, tile_counts);
  const auto visit = [&](auto then) {
    return visit_tiles<true>(p, scratch, own_cells > 0, {splat.mx, splat.my, radius2}, splat.z,
                             static_cast<uint32_t>(i), then);
  };
  if constexpr (kShared) {  // once to count, so that the block's places are known
    __syncthreads();
    visit([&](const Reached(&reached)[kTogether]) {
#pragma unroll
      for (const Reached& r : reached)
        if (r.cells) counters.add(r.tile);
    });
    counters.reserve(p);
  }
  const OwnCells cells = visit([&](const Reached(&reached)[kTogether]) {
    uint32_t at[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k)
      if (reached[k].cells) at[k] = counters.add(reached[k].tile);
#pragma unroll
    for (int k = 0; k < kTogether; ++k)
      if (reached[k].cells) store(reached[k], at[k]);
  });
  if (own_cells) p.first_cell[i] = first + cells.before;
}

// Bytes for a counter of each tile, or 0 where the kernels count in global memory.
size_t counter_bytes(const RasterPlan& plan) {
  return plan.tiles() <= kMostSharedTiles ? sizeof(uint32_t) * plan.tiles() : 0;
}

}  // namespace

void launch_project(const RasterPlan& plan, cudaStream_t stream) {
  const unsigned blocks = blocks_for(plan.max_count, kBinThreads);
  if (blocks == 0) return;
  const size_t bytes = counter_bytes(plan);
  const auto kernel = bytes ? project_spheres<true> : project_spheres<false>;
  launch_early("project_spheres", kernel, blocks, kBinThreads, bytes, stream, plan);
}

void launch_refresh(const RasterPlan& plan, const Condition& make_lists, cudaStream_t stream) {
  const unsigned blocks = std::max(1u, blocks_for(plan.max_count, kBinThreads));
  launch_early("refresh_spheres", refresh_spheres, blocks, kBinThreads, 0, stream, plan,
               make_lists);
}

void launch_scan(const RasterPlan& plan, cudaStream_t stream) {
  launch_early("scan_counts", scan_counts, 1, kScanThreads, 0, stream, plan);
}

void launch_fill(const RasterPlan& plan, cudaStream_t stream) {
  const unsigned blocks = blocks_for(plan.max_count, kBinThreads);
  if (blocks == 0) return;
  const size_t bytes = counter_bytes(plan);
  const auto kernel = bytes ? fill_tiles<true> : fill_tiles<false>;
  launch_early("fill_tiles", kernel, blocks, kBinThreads, bytes, stream, plan);
}

}  // namespace gsslam
