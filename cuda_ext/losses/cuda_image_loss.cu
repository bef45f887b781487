// The loss on tiles of one colour: a kernel for the derivatives of SSIM by its moments, and one
// that convolves those and makes the gradient. Formulas: cpu_loss_band.cpp, gsslam/losses.py.
#include <algorithm>

#include "common/cuda_launch.h"
#include "common/reduce.cuh"
#include "losses/cuda_image_loss.h"
#include "losses/cuda_loss_total.cuh"
#include "losses/cuda_window.cuh"
#include "rasterize/constants.h"

namespace gsslam {
namespace {

// On a multiprocessor: all of 640 x 480 at once on 132 of them.
#ifndef GSSLAM_LOSS_BLOCKS
#define GSSLAM_LOSS_BLOCKS 6
#endif
constexpr int kBlocks = GSSLAM_LOSS_BLOCKS;
constexpr int kThreads = 128;  // of the kernels without tiles

// One colour of the observed image: floats from 0 to 1, or bytes.
__device__ __forceinline__ float load_colour(const float* at) { return __ldg(at); }

__device__ __forceinline__ float load_colour(const uint8_t* at) {
  return static_cast<float>(__ldg(at)) * (1.0f / 255);
}

__device__ __forceinline__ void load_colours(const float* from, int count, bool whole,
                                             float (&out)[kQuad]) {
  load_quad(from, count, whole, out);
}

__device__ __forceinline__ void load_colours(const uint8_t* from, int count, bool whole,
                                             float (&out)[kQuad]) {
  if (whole) {
    const uchar4 v = __ldg(reinterpret_cast<const uchar4*>(from));
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
#pragma unroll
    for (float& colour : out) colour *= 1.0f / 255;
    return;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j) out[j] = j < count ? load_colour(from + j) : 0.0f;
}

// Calls use(colours) with a plane of the observed image, of whichever type it is.
template <typename Use>
__device__ __forceinline__ void with_colours(const LossTarget& t, int64_t offset, Use use) {
  if (t.colour)
    use(t.colour + offset);
  else
    use(t.colour_bytes + offset);
}

__device__ __forceinline__ bool is_measured(float depth) { return depth > 0 && depth < INFINITY; }

// `size` with the sign of v, or zero where that has none.
__device__ __forceinline__ float with_sign(float size, float v) {
  return fabsf(v) > 0 ? copysignf(size, v) : 0.0f;
}

struct Derivatives {
  float dssim, mean, sum_square, difference_square;
};

// Of a number that is neither tiny nor huge: exact but for the last bit.
__device__ __forceinline__ float reciprocal(float v) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}

// See ssim_derivatives in cpu_loss_band.cpp.
__device__ __forceinline__ Derivatives ssim_derivatives(float s_mean, float s_square, float d_mean,
                                                        float d_square) {
  const float a = s_mean * s_mean, b = d_mean * d_mean;
  const float u = s_square - a, v = d_square - b;
  const float inv_p = reciprocal(a + b + 2 * kC1), inv_q = reciprocal(u + v + 2 * kC2);
  const float p = (a - b + 2 * kC1) * inv_p, q = (u - v + 2 * kC2) * inv_q;
  Derivatives out;
  out.dssim = 2.0f * (b * inv_p + p * v * inv_q);
  out.sum_square = p * inv_q * inv_q * 2.0f * v;
  out.difference_square = -p * inv_q * (1.0f + q);
  const float d_a = q * inv_p * inv_p * 2.0f * b - out.sum_square;
  const float d_b = -q * inv_p * (1.0f + p) - out.difference_square;
  out.mean = 2.0f * (s_mean * d_a + d_mean * d_b);
  return out;
}

// Moments of the sum and the difference of rendered and observed colour, down the columns.
template <typename Colour>
__device__ __forceinline__ void sum_moments(const LossPlan& p, const LossTarget& target,
                                            const float* __restrict__ rendered,
                                            const Colour* __restrict__ observed,
                                            ColumnSums<4>& sums) {
  const PlainRows layout{p.width, static_cast<unsigned>(blockIdx.z * p.pixels())};
  convolve_columns(layout, p.height, sums, [&](bool inside, unsigned at, float (&moments)[4]) {
    const float a = __ldg(rendered + at) * target.gain + target.bias;
    const float b = load_colour(observed + at);
    const float s = inside ? a + b : 0.0f, d = inside ? a - b : 0.0f;
    moments[0] = s;
    moments[1] = s * s;
    moments[2] = d;
    moments[3] = d * d;
  });
}

__device__ __forceinline__ MapRows map_rows(const LossPlan& p) {
  return {p.width, p.height, static_cast<int>(blockIdx.z)};
}

// Writes the derivatives by the moments of four windows; returns the sum of their 1 - SSIM.
__device__ __forceinline__ float differentiate_quad(const LossPlan& p, const ColumnSums<4>& sums,
                                                    const Quad& quad) {
  float moments[4][kQuad];
#pragma unroll
  for (int k = 0; k < 4; ++k) convolve_quad(&sums.at[k][quad.row][quad.column], moments[k]);
  float dssim = 0;
  float maps[3][kQuad];
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    const Derivatives d =
        ssim_derivatives(moments[0][j], moments[1][j], moments[2][j], moments[3][j]);
    if (j < quad.count) dssim += d.dssim;
    maps[0][j] = d.mean;
    maps[1][j] = d.sum_square;
    maps[2][j] = d.difference_square;
  }
  const MapRows layout = map_rows(p);
  float* out = p.maps + (quad.y * layout.row_stride() + layout.offset(quad.x));
#pragma unroll
  for (int k = 0; k < 3; ++k) store_quad(out + k * MapRows::kStrip, kQuad, true, maps[k]);
  return dssim;
}

__device__ __forceinline__ unsigned count_measured(const LossPlan& p, const float* depth,
                                                   const Quad& quad) {
  float z[kQuad];
  load_quad(depth + quad.at(p.width), quad.count, has_whole_quads(depth, p.width, 4), z);
  unsigned count = 0;
#pragma unroll
  for (int j = 0; j < kQuad; ++j) count += is_measured(z[j]);
  return count;
}

__global__ void __launch_bounds__(kLossThreads, kBlocks)
    map_ssim_derivatives(const LossPlan p, const float* __restrict__ rendered) {
  __shared__ ColumnSums<4> sums;
  __shared__ double shared[kLossThreads / 32];
  wait_for_kernel_before();
  const LossTarget target = *p.target;
  if (p.stop && *p.stop) return;
  with_colours(target, 0,
               [&](const auto* observed) { sum_moments(p, target, rendered, observed, sums); });
  float dssim = 0;
  unsigned measured = 0;
  for_each_quad(p.width, p.height, [&](const Quad& quad) {
    dssim += differentiate_quad(p, sums, quad);
    if (blockIdx.z == 0) measured += count_measured(p, target.depth, quad);
  });
  measured = warp_sum(measured);
  if ((threadIdx.x & 31) == 0 && measured) atomicAdd(p.measured, measured);
  const double total = block_sum(static_cast<double>(dssim), shared);
  if (threadIdx.x == 0) p.dssim[p.block()] = total;
}

__global__ void __launch_bounds__(kThreads) count_all_measured(const LossPlan p) {
  wait_for_kernel_before();
  if (p.stop && *p.stop) return;
  const float* depth = p.target->depth;
  unsigned count = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < p.pixels();
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    count += is_measured(depth[i]);
  count = warp_sum(count);
  if ((threadIdx.x & 31) == 0 && count) atomicAdd(p.measured, count);
}

constexpr int kLossSums = 5;
static_assert(sizeof(LossSums) == kLossSums * sizeof(double));

// LossSums of a thread's few pixels.
struct PixelSums {
  float l1 = 0, depth = 0, silhouette = 0, grad_gain = 0, grad_bias = 0;
};

// Writes the gradient of the depth and silhouette of four pixels.
__device__ __forceinline__ void depth_gradient(const LossPlan& p, const float* rendered,
                                               const LossOutputs& outputs, const float* depth,
                                               const Quad& quad, float coverage, bool whole,
                                               PixelSums& sums) {
  const unsigned at = quad.at(p.width);
  const int64_t depth_at = kPlaneDepth * p.pixels() + at,
                silhouette_at = kPlaneSilhouette * p.pixels() + at;
  float z[kQuad], weighted[kQuad], silhouette[kQuad], grad_depth[kQuad], grad_silhouette[kQuad];
  load_quad(depth + at, quad.count, whole && has_whole_quads(depth, p.width, 4), z);
  load_quad(rendered + depth_at, quad.count, whole, weighted);
  load_quad(rendered + silhouette_at, quad.count, whole, silhouette);
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    const bool seen = is_measured(z[j]);
    const bool compared = seen && silhouette[j] > p.weights.silhouette_threshold;
    const float inv_s = 1.0f / (compared ? silhouette[j] : 1.0f);
    const float expected = weighted[j] * inv_s;
    const float residual = compared ? expected - z[j] : 0.0f;
    grad_depth[j] = with_sign(p.depth_scale, residual) * inv_s;
    grad_silhouette[j] = (compared ? -grad_depth[j] * expected : 0.0f) - (seen ? coverage : 0.0f);
    sums.depth += fabsf(residual);
    if (seen) sums.silhouette += 1.0f - silhouette[j];
  }
  store_quad(outputs.gradient + depth_at, quad.count, whole, grad_depth);
  store_quad(outputs.gradient + silhouette_at, quad.count, whole, grad_silhouette);
}

// Writes the gradient of a colour of four pixels. `ssim` has the derivative of their summed SSIM
// by the compared colour in three parts: alone, and by twice the sum and difference.
template <bool kWithSsim, typename Colour>
__device__ __forceinline__ void colour_gradient(const LossPlan& p, const LossTarget& target,
                                                const float* rendered, const Colour* observed,
                                                float* gradient, const Quad& quad, bool whole,
                                                const float (&ssim)[3][kQuad], PixelSums& sums) {
  const unsigned at = quad.at(p.width);
  float c[kQuad], b[kQuad], out[kQuad];
  load_quad(rendered + at, quad.count, whole, c);
  load_colours(observed + at, quad.count,
               whole && has_whole_quads(observed, p.width, sizeof(Colour)), b);
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    const float a = c[j] * target.gain + target.bias, residual = a - b[j];
    float g = with_sign(p.l1_scale, residual);
    if constexpr (kWithSsim)
      g += p.ssim_scale * (ssim[0][j] + 2.0f * ((a + b[j]) * ssim[1][j] + residual * ssim[2][j]));
    out[j] = target.gain * g;
    if (j >= quad.count) continue;
    sums.l1 += fabsf(residual);
    sums.grad_gain += g * c[j];
    sums.grad_bias += g;
  }
  store_quad(gradient + at, quad.count, whole, out);
}

__device__ __forceinline__ void sum_derivatives(const LossPlan& p, ColumnSums<3>& sums) {
  const float* maps = p.maps;
  convolve_columns(map_rows(p), p.height, sums, [&](bool, unsigned at, float (&value)[3]) {
#pragma unroll
    for (int k = 0; k < 3; ++k) value[k] = __ldg(maps + at + k * MapRows::kStrip);
  });
}

template <bool kWithSsim>
__global__ void __launch_bounds__(kLossThreads, kBlocks)
    loss_gradient(const LossPlan p, const float* __restrict__ rendered, const LossOutputs outputs) {
  __shared__ ColumnSums<kWithSsim ? 3 : 1> columns;
  __shared__ double shared[kLossThreads / 32][kLossSums];
  wait_for_kernel_before();
  const LossTarget target = *p.target;
  if (p.stop && *p.stop) return;
  if constexpr (kWithSsim) sum_derivatives(p, columns);
  const int64_t offset = blockIdx.z * p.pixels();
  const bool whole =
      has_whole_quads(rendered, p.width, 4) && has_whole_quads(outputs.gradient, p.width, 4);
  // Of the silhouette, by pixel.
  const float coverage =
      static_cast<float>(p.weights.silhouette) / static_cast<float>(max(*p.measured, 1u));
  PixelSums sums;
  for_each_quad(p.width, p.height, [&](const Quad& quad) {
    float ssim[3][kQuad];
    if constexpr (kWithSsim)
#pragma unroll
      for (int k = 0; k < 3; ++k) convolve_quad(&columns.at[k][quad.row][quad.column], ssim[k]);
    with_colours(target, offset, [&](const auto* observed) {
      colour_gradient<kWithSsim>(p, target, rendered + offset, observed, outputs.gradient + offset,
                                 quad, whole, ssim, sums);
    });
    if (blockIdx.z == 0)
      depth_gradient(p, rendered, outputs, target.depth, quad, coverage, whole, sums);
  });
  const double total = block_sums<kLossSums>(
      {sums.l1, sums.depth, sums.silhouette, sums.grad_gain, sums.grad_bias}, shared);
  if (threadIdx.x < kLossSums) reinterpret_cast<double*>(p.sums + p.block())[threadIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    map_colour_error(const LossPlan p, const float* __restrict__ rendered, float* error) {
  wait_for_kernel_before();
  const LossTarget target = *p.target;
  const int64_t plane = p.pixels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= plane) return;
  float sum = 0;
  for (int64_t at = i; at < kColours * plane; at += plane)
    sum += fabsf(
        rendered[at] * target.gain + target.bias -
        (target.colour ? load_colour(target.colour + at) : load_colour(target.colour_bytes + at)));
  error[i] = sum * (1.0f / kColours);
}

__global__ void __launch_bounds__(kThreads) add_up_loss(const LossPlan p, LossValue* value) {
  wait_for_kernel_before();
  const LossValue total = total_loss(p);
  if (threadIdx.x == 0) *value = total;
}

}  // namespace

CudaImageLoss::CudaImageLoss(int device) : device_(device) {
  const DeviceGuard guard(device);
  target_.reserve(1);
  value_.reserve(1);
}

LossPlan CudaImageLoss::prepare(int width, int height, const LossWeights& weights,
                                const LossTarget* target, const uint32_t* stop,
                                cudaStream_t stream) {
  LossPlan p{};
  p.target = target;
  p.stop = stop;
  p.width = width;
  p.height = height;
  p.weights = weights;
  const double pixels = static_cast<double>(width) * height, values = kColours * pixels;
  p.l1_scale = static_cast<float>((1 - weights.ssim) / values);
  p.ssim_scale = static_cast<float>(-weights.ssim / values);
  p.depth_scale = static_cast<float>(weights.depth / pixels);
  p.blocks_x = (width + kLossWidth - 1) / kLossWidth;
  p.blocks_y = (height + kLossHeight - 1) / kLossHeight;
  if (weights.ssim != 0) maps_.reserve_zeroed(MapRows{width, height, kColours}.offset(0), stream);
  dssim_.reserve(size_t{kColours} * p.blocks());
  sums_.reserve(size_t{kColours} * p.blocks());
  measured_.reserve_zeroed(1, stream);
  p.maps = maps_.get();
  p.dssim = dssim_.get();
  p.sums = sums_.get();
  p.measured = measured_.get();
  return p;
}

LossValue CudaImageLoss::evaluate(const LossImages& images, double gain, double bias,
                                  const LossWeights& weights, const LossOutputs& outputs,
                                  cudaStream_t stream) {
  const DeviceGuard guard(device_);
  const LossPlan p = prepare(static_cast<int>(images.width), static_cast<int>(images.height),
                             weights, target_.get(), nullptr, stream);
  upload(target_.get(),
         LossTarget{images.colour, nullptr, images.depth, static_cast<float>(gain),
                    static_cast<float>(bias)},
         stream);
  launch_loss(p, images.rendered, outputs, stream);
  launch_loss_value(p, value_.get(), stream);
  return download(value_.get(), stream);
}

void launch_loss(const LossPlan& p, const float* rendered, const LossOutputs& outputs,
                 cudaStream_t stream) {
  const dim3 grid(p.blocks_x, p.blocks_y, kColours);
  if (p.weights.ssim != 0) {
    launch_early("map_ssim_derivatives", map_ssim_derivatives, grid, kLossThreads, 0, stream, p,
                 rendered);
    launch_early("loss_gradient", loss_gradient<true>, grid, kLossThreads, 0, stream, p, rendered,
                 outputs);
  } else {
    launch_early("count_all_measured", count_all_measured, std::min(p.blocks(), 128), kThreads, 0,
                 stream, p);
    launch_early("loss_gradient", loss_gradient<false>, grid, kLossThreads, 0, stream, p, rendered,
                 outputs);
  }
  if (!outputs.error) return;
  const unsigned blocks = blocks_for(static_cast<size_t>(p.width) * p.height, kThreads);
  launch_early("map_colour_error", map_colour_error, blocks, kThreads, 0, stream, p, rendered,
               outputs.error);
}

void launch_loss_value(const LossPlan& plan, LossValue* value, cudaStream_t stream) {
  launch_early("add_up_loss", add_up_loss, 1, kThreads, 0, stream, plan, value);
}

}  // namespace gsslam
