// Long lists, cut in depth: the parts of a cell's list are blended side by side by several warps.
//
// A pixel takes no sphere behind the one with which its light falls under kMinTransmittance, so
// that a segment must know exactly how much light comes to it. A warp first measures what its
// segment lets through by itself; the product of that over the segments before is the light that
// comes to the pixel. With it the segment is blended as the whole list would be; one to which no
// light comes adds nothing. The last warp of a cell adds the segments up, in order.
//
// Warps take segments in the order of a ticket and wait only for segments with earlier tickets,
// whose warps are running: no warp waits for one that has not begun.
#pragma once

#include "common/reduce.cuh"
#include "rasterize/cuda_cell.cuh"

namespace gsslam {

enum SegmentPlane { kSegmentLetsThrough, kSegmentLight, kSegmentAdds };

__device__ __forceinline__ float* segment_pixel(const RasterPlan& p, uint32_t segment) {
  return p.segment_pixels + segment * (kSegmentPlanes * 32) + (threadIdx.x & 31);
}

// A number that another warp may just have written.
template <typename T>
__device__ __forceinline__ T read_fresh(const T* address) {
  return *const_cast<const volatile T*>(address);
}

__device__ __forceinline__ uint32_t segment_count(const RasterPlan& p) {
  return min(p.state->segments, kMaxSegments);
}

// Publishes what the warp's lanes have written before.
__device__ __forceinline__ void publish_progress(const RasterPlan& p, uint32_t segment,
                                                 SegmentProgress progress) {
  __threadfence();
  __syncwarp();
  if ((threadIdx.x & 31) == 0)
    *const_cast<volatile uint32_t*>(p.segment_progress + segment) = progress;
}

// The light that comes to the lane's pixel of a segment: waits for the segments before.
__device__ __forceinline__ float light_before(const RasterPlan& p, uint32_t segment,
                                              uint32_t place) {
  float light = 1;
  for (uint32_t before = segment - place; before < segment; ++before) {
    while (read_fresh(p.segment_progress + before) == kSegmentOpen) __nanosleep(20);
    __threadfence();
    light *= read_fresh(segment_pixel(p, before) + 32 * kSegmentLetsThrough);
  }
  return light;
}

// Whether no light leaves the segment before, as far as is known: it depends on who was faster, but
// nothing does on it.
__device__ __forceinline__ bool is_surely_dark(const RasterPlan& p, uint32_t segment,
                                               uint32_t place) {
  const uint32_t progress = place ? read_fresh(p.segment_progress + segment - 1) : kSegmentOpen;
  return __shfl_sync(kFullWarp, progress, 0) == kSegmentDark;
}

// Calls blend(segment number, segment) for the warp's share of the segments, and finish(segment
// number of the first, segment) in the warp that is last with those of a cell.
template <typename Blend, typename Finish>
__device__ __forceinline__ void take_segments(const RasterPlan& p, Blend blend, Finish finish) {
  const uint32_t count = segment_count(p), lane = threadIdx.x & 31;
  if (count == 0) return;
  while (true) {
    uint32_t n = lane == 0 ? atomicAdd(&p.state->segment_ticket, 1u) : 0;
    n = __shfl_sync(kFullWarp, n, 0);
    if (n >= count) break;
    const Segment segment = p.segments[n];
    if (segment.of == 0) continue;
    blend(n, segment);
    __threadfence();
    __syncwarp();
    const uint32_t first = n - segment.place;
    uint32_t done = lane == 0 ? atomicAdd(&p.segments_done[first], 1u) : 0;
    done = __shfl_sync(kFullWarp, done, 0);
    if (done != segment.of - 1) continue;
    __threadfence();
    finish(first, segment);
    for (uint32_t i = lane; i < segment.of; i += 32) p.segment_progress[first + i] = kSegmentOpen;
    if (lane == 0) p.segments_done[first] = 0;
  }
  const uint32_t warps = p.segment_blocks * kBlendWarps;
  if (lane == 0 && atomicAdd(&p.state->segment_leavers, 1u) == warps - 1)
    p.state->segment_ticket = p.state->segment_leavers = 0;
}

}  // namespace gsslam
