// Projection, and distribution to the lists of the tiles.
#include <algorithm>

#include "common/cuda_check.h"
#include "common/cuda_memory.h"
#include "rasterize/cuda_rasterizer.h"
#include "rasterize/cuda_tiles.cuh"

namespace gsslam {
namespace {

constexpr int kScanThreads = 1024;

__device__ __forceinline__ PoseSplat pose_splat(const View& view, const Splat& splat) {
  const SplatGeometry g = geometry_of(view, splat);
  const AlphaJacobian j = alpha_jacobian(view, g);
  return {j.a, j.b, j.c, j.e, j.q0, j.q1, g.x, g.y};
}

__global__ void __launch_bounds__(kBinThreads) project_spheres(const RasterPlan p) {
  __shared__ uint32_t shared[kBinThreads / 32];
  __shared__ View view;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBinThreads + threadIdx.x;
  // Loaded before it is known to be needed, so that latencies overlap.
  Sphere sphere{};
  if (i < p.max_count) sphere = SphereMatrix{p.parameters, p.capacity, p.max_count}.at(i);
  if (threadIdx.x < sizeof(View) / 4)
    reinterpret_cast<uint32_t*>(&view)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&p.state->view)[threadIdx.x];
  const uint32_t count = p.state->count;
  if (p.state->keeps_lists() || static_cast<int64_t>(blockIdx.x) * kBinThreads >= count) return;
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
  if (const float margin = p.state->margin; active && margin > 0) {
    const float radius = sqrtf(circle.radius2) + margin;
    circle.radius2 = radius * radius;
  }
  const uint32_t cells =
      visit_tiles(p, active, circle, Owner{}, [&](const Owner&, const auto& reached) {
#pragma unroll
        for (const Reached& r : reached) TileCount(p.tile_next, r.cells, r.tile);
      });
  if (i < count) p.cell_counts[i] = cells;
  if (cells) {
    splat.opacity = log2f(splat.opacity);
    splat.r = p.parameters[kRed * p.capacity + i];
    splat.g = p.parameters[kGreen * p.capacity + i];
    splat.b = p.parameters[kBlue * p.capacity + i];
    p.splats[i] = splat;
    p.radius2[i] = circle.radius2;
    if (p.pose_splats) p.pose_splats[i] = pose_splat(view, splat);
    if (p.listed_at) p.listed_at[i] = {splat.mx, splat.my};
    for (int d = 0; d < p.num_features; ++d)
      p.features[i * p.num_features + d] = p.parameters[(kFeature + d) * p.capacity + i];
  }
  const uint32_t total = block_sum(cells, shared);
  const unsigned visible = __syncthreads_count(cells > 0);
  if (threadIdx.x == 0) {
    p.block_cells[blockIdx.x] = total;
    if (visible) atomicAdd(&p.state->visible, visible);
  }
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
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBinThreads + threadIdx.x;
  Sphere sphere{};
  uint32_t cells = 0;
  if (i < p.max_count) {
    sphere = SphereMatrix{p.parameters, p.capacity, p.max_count}.at(i);
    cells = p.cell_counts[i];
  }
  if (threadIdx.x < sizeof(View) / 4)
    reinterpret_cast<uint32_t*>(&view)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&p.state->view)[threadIdx.x];
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

// Turns counts into starts, checks that everything fits, and orders the tiles, longest first, so
// that no long one starts last.
__global__ void __launch_bounds__(kScanThreads) scan_counts(const RasterPlan p) {
  constexpr int kClasses = 256, kClassSize = 16;
  __shared__ uint64_t shared[kScanThreads / 32];
  __shared__ uint32_t classes[kClasses];
  if (p.state->keeps_lists()) return;
  const int tiles = p.tiles();
  const int blocks = static_cast<int>((p.state->count + kBinThreads - 1) / kBinThreads);
  uint64_t entries = 0, cells = 0, in_chunk;
  for (int base = 0; base < blocks; base += kScanThreads) {
    const int block = base + threadIdx.x;
    const uint64_t own = block < blocks ? p.block_cells[block] : 0;
    const uint64_t before = cells + block_exclusive_sum(own, shared, in_chunk);
    if (block < blocks) p.block_cells[block] = static_cast<uint32_t>(before);
    cells += in_chunk;
  }
  for (int c = threadIdx.x; c < kClasses; c += kScanThreads) classes[c] = 0;
  for (int base = 0; base < tiles; base += kScanThreads) {
    const int tile = base + threadIdx.x;
    const uint32_t own = tile < tiles ? p.tile_next[tile * kCounterStride] : 0;
    const uint64_t before = entries + block_exclusive_sum<uint64_t>(own, shared, in_chunk);
    if (tile < tiles) {
      p.tile_start[tile] = static_cast<uint32_t>(before);
      p.tile_next[tile * kCounterStride] = static_cast<uint32_t>(before);
      atomicAdd(&classes[kClasses - 1 - min(own / kClassSize, kClasses - 1u)], 1u);
    }
    entries += in_chunk;
  }
  const bool fits = entries <= p.max_entries && cells <= p.max_cells;
  if (threadIdx.x == 0) {
    p.tile_start[tiles] = static_cast<uint32_t>(entries);
    p.state->entries = entries;
    p.state->cells = cells;
    if (!fits) p.state->overflow = 1;
  }
  __syncthreads();
  if (threadIdx.x < 32) {  // starts of the classes
    uint32_t before = 0, total;
    for (int base = 0; base < kClasses; base += 32) {
      const uint32_t start = before + warp_exclusive_sum(classes[base + threadIdx.x], total);
      classes[base + threadIdx.x] = start;
      before += total;
    }
  }
  __syncthreads();
  for (int tile = threadIdx.x; tile < tiles; tile += kScanThreads) {
    const uint32_t size = p.tile_start[tile + 1] - p.tile_start[tile];
    const uint32_t c = kClasses - 1 - min(size / kClassSize, kClasses - 1u);
    p.tile_order[atomicAdd(&classes[c], 1u)] = tile;
  }
  if (fits) return;
  __syncthreads();
  for (int tile = threadIdx.x; tile <= tiles; tile += kScanThreads) {
    p.tile_start[tile] = 0;
    if (tile < tiles) p.tile_next[tile * kCounterStride] = 0;
  }
}

__global__ void __launch_bounds__(kBinThreads) fill_tiles(const RasterPlan p) {
  __shared__ uint32_t shared[kBinThreads / 32];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBinThreads + threadIdx.x;
  uint32_t cells = 0;
  Splat splat{};
  float radius2 = 0;
  if (i < p.max_count) {
    cells = p.cell_counts[i];
    splat = p.splats[i];
    radius2 = p.radius2[i];
  }
  const uint32_t count = p.state->count;
  if (p.state->keeps_lists() || static_cast<int64_t>(blockIdx.x) * kBinThreads >= count) return;
  if (i >= count) cells = 0;
  uint32_t total;
  const uint32_t first = p.block_cells[blockIdx.x] + block_exclusive_sum(cells, shared, total);
  if (total == 0) return;
  Circle circle{};
  Owner owner{static_cast<uint32_t>(i), first, 0};
  if (cells) {
    p.first_cell[i] = first;
    circle = {splat.mx, splat.my, radius2};
    owner.depth_bits = __float_as_uint(splat.z);
  }
  visit_tiles(p, cells > 0, circle, owner, [&](const Owner& o, const auto& reached) {
    constexpr int kCount = sizeof(reached) / sizeof(Reached);
    TileCount counts[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      counts[k] = TileCount(p.tile_next, reached[k].cells, reached[k].tile);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const uint32_t at = counts[k].place();
      if (!reached[k].cells) continue;
      const uint32_t cell = o.first_cell + reached[k].cells_before;
      // Positive floats sort like their bits, and cells like the spheres' indices.
      p.keys[at] = static_cast<uint64_t>(o.depth_bits) << 32 | cell;
      p.cell_words[cell] = o.index | reached[k].cells << kIndexBits;
    }
  });
}

}  // namespace

void launch_project(const RasterPlan& plan, cudaStream_t stream) {
  const unsigned blocks = blocks_for(plan.max_count, kBinThreads);
  if (blocks == 0) return;
  project_spheres<<<blocks, kBinThreads, 0, stream>>>(plan);
  GSSLAM_LAUNCHED(project_spheres);
}

void launch_refresh(const RasterPlan& plan, const Condition& make_lists, cudaStream_t stream) {
  const unsigned blocks = std::max(1u, blocks_for(plan.max_count, kBinThreads));
  refresh_spheres<<<blocks, kBinThreads, 0, stream>>>(plan, make_lists);
  GSSLAM_LAUNCHED(refresh_spheres);
}

void launch_scan(const RasterPlan& plan, cudaStream_t stream) {
  scan_counts<<<1, kScanThreads, 0, stream>>>(plan);
  GSSLAM_LAUNCHED(scan_counts);
}

void launch_fill(const RasterPlan& plan, cudaStream_t stream) {
  const unsigned blocks = blocks_for(plan.max_count, kBinThreads);
  if (blocks == 0) return;
  fill_tiles<<<blocks, kBinThreads, 0, stream>>>(plan);
  GSSLAM_LAUNCHED(fill_tiles);
}

}  // namespace gsslam
