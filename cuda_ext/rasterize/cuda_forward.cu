// Blending, front to back.
#include "common/cuda_launch.h"
#include "rasterize/cuda_cell.cuh"
#include "rasterize/cuda_rasterizer.h"

namespace gsslam {
namespace {

// Renders kFeatures feature planes from first_feature on, and the five others with the first.
template <int kFeatures>
__global__ void __launch_bounds__(kBlendThreads)
    blend_forward(const RasterPlan p, float* __restrict__ image, int first_feature) {
  __shared__ CellScratch<false> scratches[kBlendWarps];
  wait_for_kernel_before();
  if (p.state->overflow) return;
  CellScratch<false>& scratch = scratches[threadIdx.x / 32];
  const CellPixel c = cell_pixel(p);
  float T = c.inside ? 1.0f : 0.0f, r = 0, g = 0, b = 0, depth = 0, silhouette = 0;
  float features[kFeatures ? kFeatures : 1] = {};
  const int used = min(kFeatures, p.num_features - first_feature);
  walk_cell(
      p, c, scratch,
      [&](int buffer, int k) {
        const Splat s = scratch.splats[buffer][k];
        const float w = contribution(s, c.x, c.y, T).alpha * T;
        r += w * s.r;
        g += w * s.g;
        b += w * s.b;
        depth += w * s.z;
        silhouette += w;
        T -= w;
        if constexpr (kFeatures > 0) {
          const float* f = p.features +
                           static_cast<int64_t>(scratch.ids[buffer][k].x) * p.num_features +
                           first_feature;
#pragma unroll
          for (int d = 0; d < kFeatures; ++d)
            if (d < used) features[d] += w * __ldg(f + d);
        }
      },
      [&] { return T >= kMinTransmittance; });
  if (!c.inside) return;
  const int64_t plane = p.pixels();
  float* out = image + c.pixel;
  if (first_feature == 0) {
    out[kPlaneRed * plane] = r;
    out[kPlaneGreen * plane] = g;
    out[kPlaneBlue * plane] = b;
    out[kPlaneDepth * plane] = depth;
    out[kPlaneSilhouette * plane] = silhouette;
  }
#pragma unroll
  for (int d = 0; d < kFeatures; ++d)
    if (d < used) out[(kPlaneFeature + first_feature + d) * plane] = features[d];
}

}  // namespace

void launch_forward(const RasterPlan& plan, float* image, cudaStream_t stream) {
  const unsigned blocks = kBlocksOfTile * plan.tiles();
  const auto launch = [&](auto kernel, int first_feature) {
    launch_early("blend_forward", kernel, blocks, kBlendThreads, 0, stream, plan, image,
                 first_feature);
  };
  if (plan.num_features == 0)
    launch(blend_forward<0>, 0);
  else if (plan.num_features <= 16)
    launch(blend_forward<16>, 0);
  else
    for (int first = 0; first < plan.num_features; first += 32) launch(blend_forward<32>, first);
}

}  // namespace gsslam
