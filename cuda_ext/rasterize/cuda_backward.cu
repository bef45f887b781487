// The backward pass of the blending: each warp stores its cell's sums for each sphere in the slot
// that only it writes.
#include "common/cuda_launch.h"
#include "rasterize/cuda_cell_sums.cuh"
#include "rasterize/cuda_rasterizer.h"
#include "rasterize/cuda_segments.cuh"

namespace gsslam {
namespace {

// What the backward pass keeps of a pixel. q is what a unit of weight of a sphere is worth: its
// colour, depth, 1 and features, each times the gradient of the plane. `rest` is the sum of weight
// x q over the spheres still to come: the total is known from the image, so that going front to
// back needs no division to undo the blending.
template <int kFeatures>
struct BackwardPixel {
  float grad[kPlaneFeature];
  float feature_grads[kFeatures ? kFeatures : 1];
  float transmittance, rest;
};

template <int kFeatures>
__device__ __forceinline__ BackwardPixel<kFeatures> load_pixel(const RasterPlan& p,
                                                               const CudaBackward& back,
                                                               const CellPixel& c) {
  BackwardPixel<kFeatures> pixel{};
  // Pixels outside the image count as finished.
  if (!c.inside) return pixel;
  pixel.transmittance = 1;
  const int64_t plane = p.pixels();
#pragma unroll
  for (int k = 0; k < kPlaneFeature; ++k) {
    pixel.grad[k] = back.grad_image[k * plane + c.pixel];
    pixel.rest += pixel.grad[k] * back.image[k * plane + c.pixel];
  }
#pragma unroll
  for (int d = 0; d < kFeatures; ++d) {
    if (d >= p.num_features) break;
    const int64_t at = (kPlaneFeature + d) * plane + c.pixel;
    pixel.feature_grads[d] = back.grad_image[at];
    pixel.rest += pixel.feature_grads[d] * back.image[at];
  }
  return pixel;
}

__device__ __forceinline__ void store_statistics(float w, float error, float* slot) {
  const float weight = warp_sum(w), weighted_error = warp_sum(w * error), largest = warp_max(w);
  const unsigned pixels = __popc(__ballot_sync(kFullWarp, w > 0));
  if ((threadIdx.x & 31) == 0) {
    slot[kStatWeight] = weight;
    slot[kStatWeightedError] = weighted_error;
    slot[kStatMaxWeight] = largest;
    slot[kStatPixels] = static_cast<float>(pixels);
  }
}

// Zeroes the slots of the spheres that no pixel of the cell got to.
__device__ __forceinline__ void clear_rest(const RasterPlan& p, const CellPixel& c, float* sums,
                                           int stride, uint32_t position) {
  for (position += threadIdx.x & 31; position < c.end; position += 32) {
    float* slot = sums + static_cast<uint64_t>(p.items[position].slot) * stride;
    if (stride == kSums) {
      reinterpret_cast<float4*>(slot)[0] = float4{};
      reinterpret_cast<float4*>(slot)[1] = float4{};
    } else {
      for (int k = 0; k < stride; ++k) slot[k] = 0;
    }
  }
}

// Moves a pixel to where a segment of its list begins.
__device__ __forceinline__ void skip_to_segment(const RasterPlan& p, uint32_t n,
                                                const Segment& segment, BackwardPixel<0>& pixel) {
  pixel.transmittance = segment_pixel(p, n)[32 * kSegmentLight];
  for (uint32_t before = n - segment.place; before < n; ++before) {
    const float* adds = segment_pixel(p, before) + 32 * kSegmentAdds;
#pragma unroll
    for (int k = 0; k < kPlaneFeature; ++k) pixel.rest -= pixel.grad[k] * adds[32 * k];
  }
}

// Calls differentiate(cell, pixel) for the warp's cell, or for its share of the segments.
template <int kFeatures, typename Differentiate>
__device__ __forceinline__ void for_each_list(const RasterPlan& p, const CudaBackward& back,
                                              Differentiate differentiate) {
  unsigned block = blockIdx.x;
  if constexpr (kFeatures == 0) {
    const unsigned segment_blocks = p.segment_blocks;
    if (block < segment_blocks) {
      const uint32_t count = segment_count(p);
      for (uint32_t n = block * kBlendWarps + threadIdx.x / 32; n < count;
           n += segment_blocks * kBlendWarps) {
        const Segment segment = p.segments[n];
        if (segment.of == 0) continue;
        const CellPixel c = cell_pixel(p, segment.cell, segment.first_item, segment.end_item);
        BackwardPixel<0> pixel = load_pixel<0>(p, back, c);
        if (c.inside) skip_to_segment(p, n, segment, pixel);
        differentiate(c, pixel);
      }
      return;
    }
    block -= segment_blocks;
  }
  const uint32_t cell = cell_of_warp(p, block);
  const CellList list = p.cell_lists[cell];
  if (list.size == 0 || (kFeatures == 0 && list.is_long)) return;
  const CellPixel c = cell_pixel(p, cell, list.first, list.first + list.size);
  BackwardPixel<kFeatures> pixel = load_pixel<kFeatures>(p, back, c);
  differentiate(c, pixel);
}

// w and G of a sphere at the lane's pixel; moves the pixel behind the sphere.
struct PixelGradient {
  float w, G;
  CellContribution at;
};

template <int kFeatures>
__device__ __forceinline__ PixelGradient pass_sphere(const RasterPlan& p, const CellPixel& c,
                                                     const Splat& s, uint32_t index,
                                                     BackwardPixel<kFeatures>& pixel) {
  PixelGradient out;
  out.at = contribution(s, c.x, c.y, pixel.transmittance);
  out.w = out.at.alpha * pixel.transmittance;
  float q = pixel.grad[kPlaneRed] * s.r + pixel.grad[kPlaneGreen] * s.g +
            pixel.grad[kPlaneBlue] * s.b + pixel.grad[kPlaneDepth] * s.z +
            pixel.grad[kPlaneSilhouette];
  if constexpr (kFeatures > 0) {
    const float* f = p.features + static_cast<int64_t>(index) * p.num_features;
#pragma unroll
    for (int d = 0; d < kFeatures; ++d)
      if (d < p.num_features) q += pixel.feature_grads[d] * __ldg(f + d);
  }
  const float value = out.w * q;
  pixel.rest -= value;
  pixel.transmittance -= out.w;
  const float ratio = odds(out.at.alpha);
  out.G = out.at.free ? value - ratio * pixel.rest : 0.0f;
  return out;
}

// Of visits to spheres, and blocks on a multiprocessor.
#ifndef GSSLAM_BACKWARD_UNROLLED
#define GSSLAM_BACKWARD_UNROLLED 8
#endif
#ifndef GSSLAM_BACKWARD_BLOCKS
#define GSSLAM_BACKWARD_BLOCKS 14
#endif
constexpr int kPlainUnrolled = GSSLAM_BACKWARD_UNROLLED, kPlainBlocks = GSSLAM_BACKWARD_BLOCKS;

// Without features and statistics: the tensor cores add up.
__global__ void __launch_bounds__(kBlendThreads, kPlainBlocks)
    blend_backward_plain(const RasterPlan p, const CudaBackward back) {
  __shared__ CellScratch<false> scratches[kBlendWarps];
  __shared__ CellSums::Shared shared[kBlendWarps];
  wait_for_kernel_before();
  if (p.state->overflow) return;
  CellScratch<false>& scratch = scratches[threadIdx.x / 32];
  for_each_list<0>(p, back, [&](const CellPixel& c, BackwardPixel<0>& pixel) {
    const float grad[4] = {pixel.grad[kPlaneRed], pixel.grad[kPlaneGreen], pixel.grad[kPlaneBlue],
                           pixel.grad[kPlaneDepth]};
    CellSums sums(shared[threadIdx.x / 32], c, grad, back.sums);
    const uint32_t position = walk_cell<kPlainUnrolled>(
        p, c, scratch,
        [&](int buffer, int k, int place) {
          const PixelGradient g = pass_sphere<0>(p, c, scratch.splats[buffer][k], 0, pixel);
          sums.add(place, g.w, g.G);
        },
        [&](int buffer, int first, int number) {
          sums.store(scratch, buffer, first, number);
          return pixel.transmittance >= kMinTransmittance;
        });
    clear_rest(p, c, back.sums, kSums, position);
  });
}

// Stores a sphere's sums over the cell in its slot.
template <int kFeatures>
__device__ __forceinline__ void store_sums(const RasterPlan& p, const PixelGradient& g,
                                           const BackwardPixel<kFeatures>& pixel, float* slot) {
  const unsigned lane = threadIdx.x & 31;
  float sums[kSums];
  sums[kSumRed] = g.w * pixel.grad[kPlaneRed];
  sums[kSumGreen] = g.w * pixel.grad[kPlaneGreen];
  sums[kSumBlue] = g.w * pixel.grad[kPlaneBlue];
  sums[kSumDepth] = g.w * pixel.grad[kPlaneDepth];
  sums[kSumG] = g.G;
  sums[kSumGdx] = g.G * g.at.dx;
  sums[kSumGdy] = g.G * g.at.dy;
  sums[kSumGd2] = g.G * g.at.d2;
  warp_sum_transposed(sums);
  if (lane % 4 == 0) slot[lane / 4] = sums[0];
#pragma unroll
  for (int first = 0; first < kFeatures; first += 16) {
    float feature_sums[16];
#pragma unroll
    for (int d = 0; d < 16; ++d) feature_sums[d] = g.w * pixel.feature_grads[first + d];
    warp_sum_transposed(feature_sums);
    const int d = first + static_cast<int>(lane / 2);
    if (lane % 2 == 0 && d < p.num_features) slot[kSums + d] = feature_sums[0];
  }
}

template <int kFeatures, bool kWithStatistics>
__global__ void __launch_bounds__(kBlendThreads)
    blend_backward(const RasterPlan p, const CudaBackward back) {
  __shared__ CellScratch<false> scratches[kBlendWarps];
  wait_for_kernel_before();
  if (p.state->overflow) return;
  CellScratch<false>& scratch = scratches[threadIdx.x / 32];
  for_each_list<kFeatures>(p, back, [&](const CellPixel& c, BackwardPixel<kFeatures>& pixel) {
    float error = 0;
    if constexpr (kWithStatistics) error = c.inside ? back.error[c.pixel] : 0.0f;
    const uint32_t position = walk_cell<1>(
        p, c, scratch,
        [&](int buffer, int k, int) {
          const CellItem item = scratch.items[buffer][k];
          const PixelGradient g =
              pass_sphere<kFeatures>(p, c, scratch.splats[buffer][k], item.index, pixel);
          float* slot = back.sums + static_cast<uint64_t>(item.slot) * back.stride;
          store_sums(p, g, pixel, slot);
          if constexpr (kWithStatistics)
            store_statistics(g.w, error, slot + kSums + p.num_features);
        },
        [&](int, int, int) { return pixel.transmittance >= kMinTransmittance; });
    clear_rest(p, c, back.sums, back.stride, position);
  });
}

template <int kFeatures>
void launch(const RasterPlan& plan, const CudaBackward& back, cudaStream_t stream) {
  const unsigned blocks = kBlocksOfTile * plan.tiles() + (kFeatures == 0 ? plan.segment_blocks : 0);
  const auto kernel =
      back.error ? blend_backward<kFeatures, true> : blend_backward<kFeatures, false>;
  launch_early("blend_backward", kernel, blocks, kBlendThreads, 0, stream, plan, back);
}

// TF32 came with compute capability 8.
bool has_tensor_cores() {
  int device = 0, major = 0;
  GSSLAM_CUDA(cudaGetDevice(&device));
  GSSLAM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 8;
}

}  // namespace

void launch_backward(const RasterPlan& plan, const CudaBackward& back, cudaStream_t stream) {
  if (plan.num_features == 0 && !back.error && has_tensor_cores())
    launch_early("blend_backward_plain", blend_backward_plain,
                 kBlocksOfTile * plan.tiles() + plan.segment_blocks, kBlendThreads, 0, stream, plan,
                 back);
  else if (plan.num_features == 0)
    launch<0>(plan, back, stream);
  else if (plan.num_features <= 16)
    launch<16>(plan, back, stream);
  else if (plan.num_features <= 32)
    launch<32>(plan, back, stream);
  else
    launch<64>(plan, back, stream);
}

}  // namespace gsslam
