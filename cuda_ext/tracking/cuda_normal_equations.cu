// Exact Gauss-Newton normal equations in one kernel, all in registers: no image is written.
//
// The CPU walks each list twice, for the colours and then for their derivatives. Here one walk does
// both, with the derivative of the transmittance carried along. With v the derivative of ln(alpha)
// by the twist and S = -d ln(T) by the twist, the sum of alpha / (1 - alpha) v over the spheres in
// front, a channel's derivative is the sum of w c (v - S), and that of the silhouette is T S at the
// end of the list. Residuals and weights: cpu_normal_equations.cpp.
#include "common/cuda_launch.h"
#include "rasterize/cuda_cell.cuh"
#include "tracking/cuda_tracking.h"

namespace gsslam {
namespace {

constexpr int kColours = 3;
constexpr int kChannels = kColours + 1;  // and depth
constexpr int kPaddedSums = 64;          // for the transposed sum: two of 32
static_assert(kTrackSums <= kPaddedSums);

// A pixel and its derivatives.
struct Rendered {
  float channel[kChannels];  // colours, then the sum of weight x (depth - nearest)
  float silhouette;
  float nearest;  // depth of the first sphere, so that depths do not cancel
  float expected_depth;
  float J[kChannels][6];  // of the colours and of the expected depth
};

struct Residuals {
  float value[kChannels];
  float weight[kChannels];
  float inv_sigma;  // of depth
};

__device__ __forceinline__ Rendered render(const RasterPlan& p, const CellPixel& c,
                                           CellScratch<true>& scratch) {
  Rendered out{};
  float T = c.inside ? 1.0f : 0.0f;
  float S[6] = {}, depth_slope[3] = {};
  if (c.begin < c.end) out.nearest = p.splats[p.items[c.begin].index].z;
  walk_cell<2>(
      p, c, scratch,
      [&](int buffer, int k, int) {
        const Splat s = scratch.splats[buffer][k];
        const PoseSplat pose = scratch.poses[buffer][k];
        const CellContribution v = contribution(s, c.x, c.y, T);
        if (!__any_sync(kFullWarp, v.alpha > 0)) return;
        const float w = v.alpha * T;
        const float ratio = odds(v.alpha);
        // A clamped alpha does not change with the pose.
        const float gx = v.free ? pose.a * v.dx : 0.0f, gy = v.free ? pose.b * v.dy : 0.0f;
        const float gz = v.free ? pose.c * v.dx + pose.e * v.dy + pose.q0 + pose.q1 * v.d2 : 0.0f;
        const float of_alpha[6] = {
            gx, gy, gz, pose.y * gz - s.z * gy, s.z * gx - pose.x * gz, pose.x * gy - pose.y * gx};
        const float value[kChannels] = {w * s.r, w * s.g, w * s.b, w * (s.z - out.nearest)};
#pragma unroll
        for (int j = 0; j < 6; ++j) {
          const float slope = of_alpha[j] - S[j];
#pragma unroll
          for (int i = 0; i < kChannels; ++i) out.J[i][j] += value[i] * slope;
          S[j] += ratio * of_alpha[j];
        }
        depth_slope[0] += w;
        depth_slope[1] += w * pose.y;
        depth_slope[2] -= w * pose.x;
#pragma unroll
        for (int i = 0; i < kChannels; ++i) out.channel[i] += value[i];
        T -= w;
      },
      [&](int, int, int) { return T >= kMinTransmittance; });
  out.silhouette = depth_slope[0];
  const float inv_silhouette = 1.0f / fmaxf(out.silhouette, 1e-6f);
  const float beyond = out.channel[kColours] * inv_silhouette;  // expected depth - nearest
  out.expected_depth = out.nearest + beyond;
#pragma unroll
  for (int j = 0; j < 6; ++j) out.J[kColours][j] -= beyond * T * S[j];
#pragma unroll
  for (int j = 0; j < 3; ++j) out.J[kColours][2 + j] += depth_slope[j];
#pragma unroll
  for (int j = 0; j < 6; ++j) out.J[kColours][j] *= inv_silhouette;
  return out;
}

__device__ __forceinline__ float huber_weight(float residual) {
  return 1.0f / fmaxf(fabsf(residual), 1.0f);
}

__device__ __forceinline__ float huber_cost(float residual) {
  const float size = fabsf(residual);
  return size < 1.0f ? 0.5f * size * size : size - 0.5f;
}

// Geman and McClure's: a depth many sigma off is another surface.
__device__ __forceinline__ float geman_mcclure_weight(float residual) {
  const float share = kDepthScale2 / (kDepthScale2 + residual * residual);
  return share * share;
}

__device__ __forceinline__ float geman_mcclure_cost(float residual) {
  const float square = residual * residual;
  return kDepthScale2 / 2 * square / (kDepthScale2 + square);
}

// Fills the residuals and the sums that are not of the equations. All zero for a pixel that takes
// no part.
__device__ __forceinline__ Residuals form_residuals(const RasterPlan& p, const CellPixel& c,
                                                    const Rendered& rendered,
                                                    const Observation& seen,
                                                    const TrackingWeights& k,
                                                    float (&sums)[kPaddedSums]) {
  Residuals out{};
  const int64_t plane = p.pixels();
  sums[kTrackPixels] = 1;
#pragma unroll
  for (int i = 0; i < kColours; ++i) {
    const float observed = __ldg(seen.rgb + i * plane + c.pixel);
    const float residual = seen.gain * rendered.channel[i] + seen.bias - observed;
    sums[kTrackColourSquares] += residual * residual;
    out.value[i] = residual / k.huber_colour;
    out.weight[i] = huber_weight(out.value[i]);
    sums[kTrackCost] += huber_cost(out.value[i]);
  }
  const float z = __ldg(seen.depth + c.pixel);
  if (!(z > 0 && z < 1e30f)) return out;
  out.inv_sigma = 1.0f / (k.sigma_base + k.sigma_quadratic * z * z);
  const float difference = rendered.expected_depth - z;
  sums[kTrackDepthPixels] = 1;
  sums[kTrackDepthSquares] = difference * difference;
  out.value[kColours] = difference * out.inv_sigma;
  out.weight[kColours] = k.depth_weight * geman_mcclure_weight(out.value[kColours]);
  sums[kTrackCost] += k.depth_weight * geman_mcclure_cost(out.value[kColours]);
  return out;
}

__device__ __forceinline__ void accumulate(const Rendered& rendered, const Residuals& residuals,
                                           float gain, float inv_huber,
                                           float (&sums)[kPaddedSums]) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const bool is_depth = c == kColours;
    const float scale = is_depth ? residuals.inv_sigma : gain * inv_huber;
    float row[kUnknowns];
#pragma unroll
    for (int j = 0; j < 6; ++j) row[j] = rendered.J[c][j] * scale;
    row[6] = is_depth ? 0.0f : rendered.channel[c] * inv_huber;
    row[7] = is_depth ? 0.0f : inv_huber;
    int at = kTrackHessian;
#pragma unroll
    for (int i = 0; i < kUnknowns; ++i) {
      const float weighted = residuals.weight[c] * row[i];
#pragma unroll
      for (int j = i; j < kUnknowns; ++j) sums[at++] += weighted * row[j];
      sums[kTrackGradient + i] += weighted * residuals.value[c];
    }
  }
}

// Sums over the warp: lane l gets sums number l and 32 + l.
__device__ __forceinline__ float2 sum_over_warp(const float (&sums)[kPaddedSums]) {
  float low[32], high[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    low[i] = sums[i];
    high[i] = sums[32 + i];
  }
  warp_sum_transposed(low);
  warp_sum_transposed(high);
  return {low[0], high[0]};
}

// On a multiprocessor.
#ifndef GSSLAM_EQUATION_BLOCKS
#define GSSLAM_EQUATION_BLOCKS 14
#endif

__global__ void __launch_bounds__(kBlendThreads, GSSLAM_EQUATION_BLOCKS)
    form_normal_equations(const RasterPlan p, const TrackingPlan plan) {
  __shared__ CellScratch<true> scratches[kBlendWarps];
  __shared__ float totals[kBlendWarps][kPaddedSums];
  wait_for_kernel_before();
  if (p.state->overflow || plan.is_idle()) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t cell = cell_of_warp(p, blockIdx.x);
  const CellList list = p.cell_lists[cell];
  const CellPixel c = cell_pixel(p, cell, list.first, list.first + list.size);
  const Observation seen = *plan.seen;
  const Rendered rendered = render(p, c, scratches[warp]);
  const bool valid = c.inside && rendered.silhouette >= plan.weights.silhouette_threshold;
  float2 total{0, 0};
  if (__any_sync(kFullWarp, valid)) {
    float sums[kPaddedSums] = {};
    Residuals residuals{};
    if (valid) residuals = form_residuals(p, c, rendered, seen, plan.weights, sums);
    accumulate(rendered, residuals, seen.gain, 1.0f / plan.weights.huber_colour, sums);
    total = sum_over_warp(sums);
  }
  totals[warp][lane] = total.x;
  totals[warp][32 + lane] = total.y;
  __syncthreads();
  static_assert(kTrackSums <= kBlendThreads);
  if (threadIdx.x >= kTrackSums) return;
  float sum = 0;
  for (int w = 0; w < kBlendWarps; ++w) sum += totals[w][threadIdx.x];
  // By place in the image, as blocks take the tiles in an order that may change.
  const uint32_t place =
      kBlocksOfTile * p.tile_order[blockIdx.x / kBlocksOfTile] + blockIdx.x % kBlocksOfTile;
  plan.partials[static_cast<int64_t>(threadIdx.x) * gridDim.x + place] = sum;
}

// One block for each sum.
__global__ void __launch_bounds__(256) sum_equations(const TrackingPlan plan, int blocks) {
  __shared__ double shared[8];
  wait_for_kernel_before();
  if (plan.is_idle()) return;
  const float* partials = plan.partials + static_cast<int64_t>(blockIdx.x) * blocks;
  double sum = 0;
  for (int i = threadIdx.x; i < blocks; i += blockDim.x) sum += partials[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) plan.sums[blockIdx.x] = sum;
}

__global__ void make_pose_splats(const RasterPlan p) {
  wait_for_kernel_before();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBinThreads + threadIdx.x;
  if (i >= p.state->count || !p.cell_counts[i]) return;
  const SplatGeometry g = geometry_of(p.state->view, p.splats[i]);
  const AlphaJacobian j = alpha_jacobian(p.state->view, g);
  p.pose_splats[i] = {j.a, j.b, j.c, j.e, j.q0, j.q1, g.x, g.y};
}

}  // namespace

CudaTracking::CudaTracking(int device) : device_(device) {
  const DeviceGuard guard(device);
  seen_.reserve(1);
  sums_.reserve(kTrackSums);
}

void CudaTracking::normal_equations(CudaRasterizer& rasterizer, const Observation& seen,
                                    const TrackingWeights& weights, double* sums,
                                    cudaStream_t stream) {
  const DeviceGuard guard(device_);
  const RasterPlan& raster = rasterizer.plan();
  rasterizer.prepare({raster.parameters, raster.capacity, raster.max_count}, raster.width,
                     raster.height, kForTracking, stream);
  launch_pose_splats(rasterizer.plan(), stream);
  partials_.reserve(size_t{kBlocksOfTile} * raster.tiles() * kTrackSums);
  upload(seen_.get(), seen, stream);
  const TrackingPlan plan{seen_.get(), weights, partials_.get(), sums_.get(), nullptr, nullptr};
  launch_normal_equations(rasterizer.plan(), plan, stream);
  launch_sum_equations(rasterizer.plan(), plan, stream);
  GSSLAM_CUDA(cudaMemcpyAsync(sums, sums_.get(), kTrackSums * sizeof(double),
                              cudaMemcpyDeviceToHost, stream));
  GSSLAM_CUDA(cudaStreamSynchronize(stream));
}

void launch_pose_splats(const RasterPlan& raster, cudaStream_t stream) {
  const unsigned blocks = blocks_for(raster.max_count, kBinThreads);
  if (blocks == 0) return;
  launch_early("make_pose_splats", make_pose_splats, blocks, kBinThreads, 0, stream, raster);
}

void launch_normal_equations(const RasterPlan& raster, const TrackingPlan& plan,
                             cudaStream_t stream) {
  launch_early("form_normal_equations", form_normal_equations, kBlocksOfTile * raster.tiles(),
               kBlendThreads, 0, stream, raster, plan);
}

void launch_sum_equations(const RasterPlan& raster, const TrackingPlan& plan, cudaStream_t stream) {
  launch_early("sum_equations", sum_equations, kTrackSums, 256, 0, stream, plan,
               kBlocksOfTile * raster.tiles());
}

}  // namespace gsslam
