// Blending, front to back.
#include "common/cuda_launch.h"
#include "rasterize/cuda_rasterizer.h"
#include "rasterize/cuda_segments.cuh"

namespace gsslam {
namespace {

constexpr int kPlanes = kPlaneFeature;

template <int kFeatures>
struct ForwardPixel {
  float transmittance;
  float planes[kPlanes];
  float features[kFeatures ? kFeatures : 1];
};

// Blends the walk's spheres into a pixel.
template <int kFeatures>
__device__ __forceinline__ void blend(const RasterPlan& p, const CellPixel& c,
                                      CellScratch<false>& scratch, int first_feature, int used,
                                      ForwardPixel<kFeatures>& pixel) {
  walk_cell<kVisits>(
      p, c, scratch,
      [&](int buffer, int k, int) {
        const Splat s = scratch.splats[buffer][k];
        const float w = contribution(s, c.x, c.y, pixel.transmittance).alpha * pixel.transmittance;
        pixel.planes[kPlaneRed] += w * s.r;
        pixel.planes[kPlaneGreen] += w * s.g;
        pixel.planes[kPlaneBlue] += w * s.b;
        pixel.planes[kPlaneDepth] += w * s.z;
        pixel.planes[kPlaneSilhouette] += w;
        pixel.transmittance -= w;
        if constexpr (kFeatures > 0) {
          const float* f = p.features +
                           static_cast<int64_t>(scratch.items[buffer][k].index) * p.num_features +
                           first_feature;
#pragma unroll
          for (int d = 0; d < kFeatures; ++d)
            if (d < used) pixel.features[d] += w * __ldg(f + d);
        }
      },
      [&](int, int, int) { return pixel.transmittance >= kMinTransmittance; });
}

// What a segment lets through by itself, down to where that is as good as nothing.
__device__ __forceinline__ float measure(const RasterPlan& p, const CellPixel& c,
                                         CellScratch<false>& scratch) {
  float transmittance = c.inside ? 1.0f : 0.0f;
  walk_cell<kVisits>(
      p, c, scratch,
      [&](int buffer, int k, int) {
        const Splat& s = scratch.splats[buffer][k];
        transmittance -= contribution(s, c.x, c.y, transmittance).alpha * transmittance;
      },
      [&](int, int, int) { return transmittance >= kMinTransmittance; });
  return transmittance;
}

__device__ __forceinline__ void blend_segment(const RasterPlan& p, CellScratch<false>& scratch,
                                              uint32_t n, const Segment& segment) {
  const CellPixel c = cell_pixel(p, segment.cell, segment.first_item, segment.end_item);
  float* const out = segment_pixel(p, n);
  ForwardPixel<0> pixel{};
  const bool is_dark = is_surely_dark(p, n, segment.place);
  out[32 * kSegmentLetsThrough] = is_dark ? 0.0f : measure(p, c, scratch);
  publish_progress(p, n, is_dark ? kSegmentDark : kSegmentMeasured);
  if (!is_dark) {
    pixel.transmittance = c.inside ? light_before(p, n, segment.place) : 0.0f;
    __syncwarp();
  }
  out[32 * kSegmentLight] = pixel.transmittance;
  if (__any_sync(kFullWarp, pixel.transmittance >= kMinTransmittance))
    blend<0>(p, c, scratch, 0, 0, pixel);
#pragma unroll
  for (int k = 0; k < kPlanes; ++k) out[32 * (kSegmentAdds + k)] = pixel.planes[k];
  if (!__any_sync(kFullWarp, pixel.transmittance >= kMinTransmittance))
    publish_progress(p, n, kSegmentDark);
}

__device__ __forceinline__ void add_segments(const RasterPlan& p, float* image, uint32_t first,
                                             const Segment& segment) {
  const CellPixel c = cell_pixel(p, segment.cell, 0, 0);
  if (!c.inside) return;
#pragma unroll
  for (int k = 0; k < kPlanes; ++k) {
    float sum = 0;
    for (uint32_t i = 0; i < segment.of; ++i)
      sum += read_fresh(segment_pixel(p, first + i) + 32 * (kSegmentAdds + k));
    image[k * p.pixels() + c.pixel] = sum;
  }
}

// Renders kFeatures feature planes from first_feature on, and the five others with the first. The
// first blocks take segments, where there are no features.
template <int kFeatures>
__global__ void __launch_bounds__(kBlendThreads)
    blend_forward(const RasterPlan p, float* __restrict__ image, int first_feature) {
  __shared__ CellScratch<false> scratches[kBlendWarps];
  wait_for_kernel_before();
  if (p.state->overflow) return;
  CellScratch<false>& scratch = scratches[threadIdx.x / 32];
  unsigned block = blockIdx.x;
  if constexpr (kFeatures == 0) {
    if (block < static_cast<unsigned>(p.segment_blocks)) {
      take_segments(
          p, [&](uint32_t n, const Segment& s) { blend_segment(p, scratch, n, s); },
          [&](uint32_t first, const Segment& s) { add_segments(p, image, first, s); });
      return;
    }
    block -= p.segment_blocks;
  }
  const uint32_t cell = cell_of_warp(p, block);
  const CellList list = p.cell_lists[cell];
  if (kFeatures == 0 && list.is_long) return;
  const CellPixel c = cell_pixel(p, cell, list.first, list.first + list.size);
  ForwardPixel<kFeatures> pixel{};
  pixel.transmittance = c.inside ? 1.0f : 0.0f;
  const int used = min(kFeatures, p.num_features - first_feature);
  blend<kFeatures>(p, c, scratch, first_feature, used, pixel);
  if (!c.inside) return;
  const int64_t plane = p.pixels();
  float* out = image + c.pixel;
  if (first_feature == 0) {
#pragma unroll
    for (int k = 0; k < kPlanes; ++k) out[k * plane] = pixel.planes[k];
  }
#pragma unroll
  for (int d = 0; d < kFeatures; ++d)
    if (d < used) out[(kPlaneFeature + first_feature + d) * plane] = pixel.features[d];
}

}  // namespace

void launch_forward(const RasterPlan& plan, float* image, cudaStream_t stream) {
  const unsigned blocks = kBlocksOfTile * plan.tiles();
  const auto launch = [&](auto kernel, unsigned more_blocks, int first_feature) {
    launch_early("blend_forward", kernel, blocks + more_blocks, kBlendThreads, 0, stream, plan,
                 image, first_feature);
  };
  if (plan.num_features == 0)
    launch(blend_forward<0>, plan.segment_blocks, 0);
  else if (plan.num_features <= 16)
    launch(blend_forward<16>, 0, 0);
  else
    for (int first = 0; first < plan.num_features; first += 32) launch(blend_forward<32>, 0, first);
}

}  // namespace gsslam
