// The loss on blocks of 32 x 16 pixels of one colour. Windows are separable: rows first, from
// shared memory to shared memory, then columns to registers. A thread convolves four neighbours at
// a time, so that it reads what their windows share only once. Formulas: cpu_loss_band.cpp,
// gsslam/losses.py.
#include <algorithm>

#include "common/cuda_launch.h"
#include "common/reduce.cuh"
#include "losses/cuda_image_loss.h"
#include "losses/cuda_loss_total.cuh"
#include "rasterize/constants.h"

namespace gsslam {
namespace {

constexpr int kThreads = 128;
constexpr int kWidth = 32, kHeight = 16;
constexpr int kReachX = kWidth + 2 * kWindowRadius, kReachY = kHeight + 2 * kWindowRadius;
constexpr int kReachStride = 44;                      // a multiple of four
constexpr int kPixels = kWidth * kHeight / kThreads;  // of a thread: neighbours in a column
constexpr int kQuad = 4;                              // neighbours in a row
constexpr int kQuadReach = 16;                        // their windows, rounded up to fours
static_assert(kReachStride >= kWidth - kQuad + kQuadReach);

using Reach = float[kReachY][kReachStride];
using Rows = float[kReachY][kWidth];

__device__ __forceinline__ float weight(int i) {
  // A window weight by position, from a constant expression once the loop is unrolled.
  constexpr float w[kWindow] = {kWindowWeights[0], kWindowWeights[1], kWindowWeights[2],
                                kWindowWeights[3], kWindowWeights[4], kWindowWeights[5],
                                kWindowWeights[4], kWindowWeights[3], kWindowWeights[2],
                                kWindowWeights[1], kWindowWeights[0]};
  return w[i];
}

__device__ __forceinline__ float load_colour(const LossTarget& t, int64_t at) {
  return t.colour ? __ldg(t.colour + at)
                  : static_cast<float>(__ldg(t.colour_bytes + at)) * (1.0f / 255);
}

__device__ __forceinline__ bool is_measured(float depth) { return depth > 0 && depth < INFINITY; }

__device__ __forceinline__ float sign(float v) { return (v > 0) - (v < 0); }

struct Derivatives {
  float dssim, mean, sum_square, difference_square;
};

// See ssim_derivatives in cpu_loss_band.cpp.
__device__ __forceinline__ Derivatives ssim_derivatives(float s_mean, float s_square, float d_mean,
                                                        float d_square) {
  const float a = s_mean * s_mean, b = d_mean * d_mean;
  const float u = s_square - a, v = d_square - b;
  const float inv_p = 1.0f / (a + b + 2 * kC1), inv_q = 1.0f / (u + v + 2 * kC2);
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

// The first and the number of a thread's pixels that lie in the image.
struct Strip {
  int x, y, count;
  int row;  // of the first in the block

  __device__ explicit Strip(const LossPlan& p) {
    row = threadIdx.x / kWidth * kPixels;
    x = blockIdx.x * kWidth + threadIdx.x % kWidth;
    y = blockIdx.y * kHeight + row;
    count = x < p.width ? max(0, min(kPixels, p.height - y)) : 0;
  }
};

// Calls load(inside, pixel, row, column) for every place that the block's windows reach; `inside`
// says whether it is in the image.
template <typename Load>
__device__ __forceinline__ void for_each_in_reach(const LossPlan& p, Load load) {
  const int x0 = blockIdx.x * kWidth - kWindowRadius, y0 = blockIdx.y * kHeight - kWindowRadius;
  for (int i = threadIdx.x; i < kReachStride * kReachY; i += kThreads) {
    const int column = i % kReachStride, row = i / kReachStride, x = x0 + column, y = y0 + row;
    const bool inside = column < kReachX && x >= 0 && x < p.width && y >= 0 && y < p.height;
    load(inside, static_cast<int64_t>(y) * p.width + x, row, column);
  }
}

__device__ __forceinline__ void load_quad(const float* row, float (&out)[kQuadReach]) {
#pragma unroll
  for (int i = 0; i < kQuadReach; i += 4) {
    const float4 v = *reinterpret_cast<const float4*>(row + i);
    out[i] = v.x, out[i + 1] = v.y, out[i + 2] = v.z, out[i + 3] = v.w;
  }
}

__device__ __forceinline__ void store_quad(float* row, const float (&v)[kQuad]) {
  *reinterpret_cast<float4*>(row) = float4{v[0], v[1], v[2], v[3]};
}

__device__ __forceinline__ void convolve_quad(const float (&v)[kQuadReach], float (&out)[kQuad]) {
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    out[j] = 0;
#pragma unroll
    for (int k = 0; k < kWindow; ++k) out[j] += weight(k) * v[j + k];
  }
}

// The window down a column, for the thread's pixels.
__device__ __forceinline__ void convolve_column(const Rows& rows, const Strip& strip,
                                                float (&out)[kPixels]) {
  float v[kPixels + kWindow - 1];
#pragma unroll
  for (int i = 0; i < kPixels + kWindow - 1; ++i) v[i] = rows[strip.row + i][threadIdx.x % kWidth];
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    out[j] = 0;
#pragma unroll
    for (int k = 0; k < kWindow; ++k) out[j] += weight(k) * v[j + k];
  }
}

__device__ __forceinline__ void square(float (&v)[kQuadReach]) {
#pragma unroll
  for (float& x : v) x *= x;
}

__global__ void __launch_bounds__(kThreads)
    map_ssim_derivatives(const LossPlan p, const float* __restrict__ rendered) {
  __shared__ alignas(16) Reach sum, difference;
  __shared__ alignas(16) Rows rows[4];
  __shared__ double shared[kThreads / 32];
  wait_for_kernel_before();
  if (p.stop && *p.stop) return;
  const LossTarget target = *p.target;
  const int colour = blockIdx.z;
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  for_each_in_reach(p, [&](bool inside, int64_t at, int row, int column) {
    float s = 0, d = 0;
    if (inside) {
      const float a = rendered[colour * plane + at] * target.gain + target.bias;
      const float b = load_colour(target, colour * plane + at);
      s = a + b;
      d = a - b;
    }
    sum[row][column] = s;
    difference[row][column] = d;
  });
  __syncthreads();
  for (int i = threadIdx.x; i < kReachY * kWidth / kQuad; i += kThreads) {
    const int row = i / (kWidth / kQuad), column = i % (kWidth / kQuad) * kQuad;
    float v[kQuadReach], out[kQuad];
    load_quad(&sum[row][column], v);
    convolve_quad(v, out);
    store_quad(&rows[0][row][column], out);
    square(v);
    convolve_quad(v, out);
    store_quad(&rows[1][row][column], out);
    load_quad(&difference[row][column], v);
    convolve_quad(v, out);
    store_quad(&rows[2][row][column], out);
    square(v);
    convolve_quad(v, out);
    store_quad(&rows[3][row][column], out);
  }
  __syncthreads();
  const Strip strip(p);
  float moments[4][kPixels];
#pragma unroll
  for (int which = 0; which < 4; ++which) convolve_column(rows[which], strip, moments[which]);
  double dssim = 0;
  unsigned measured = 0;
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    if (j >= strip.count) break;
    const Derivatives out =
        ssim_derivatives(moments[0][j], moments[1][j], moments[2][j], moments[3][j]);
    dssim += out.dssim;
    const int64_t at = static_cast<int64_t>(strip.y + j) * p.width + strip.x;
    float* map = p.maps + colour * 3 * plane + at;
    map[0] = out.mean;
    map[plane] = out.sum_square;
    map[2 * plane] = out.difference_square;
    if (colour == 0) measured += is_measured(target.depth[at]);
  }
  measured = warp_sum(measured);
  if ((threadIdx.x & 31) == 0 && measured) atomicAdd(p.measured, measured);
  const double total = block_sum(dssim, shared);
  if (threadIdx.x == 0) p.dssim[p.block()] = total;
}

__global__ void __launch_bounds__(kThreads) count_measured(const LossPlan p) {
  wait_for_kernel_before();
  if (p.stop && *p.stop) return;
  const float* depth = p.target->depth;
  const int64_t pixels = static_cast<int64_t>(p.width) * p.height;
  unsigned count = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < pixels;
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    count += is_measured(depth[i]);
  count = warp_sum(count);
  if ((threadIdx.x & 31) == 0 && count) atomicAdd(p.measured, count);
}

// Derivative of the summed SSIM by the compared colour, in three parts, at the thread's pixels.
__device__ __forceinline__ void ssim_gradient(const LossPlan& p, Reach (&reach)[3], Rows (&rows)[3],
                                              const Strip& strip, float (&out)[3][kPixels]) {
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  const float* maps = p.maps + blockIdx.z * 3 * plane;
  for_each_in_reach(p, [&](bool inside, int64_t at, int row, int column) {
#pragma unroll
    for (int k = 0; k < 3; ++k) reach[k][row][column] = inside ? maps[k * plane + at] : 0.0f;
  });
  __syncthreads();
  for (int i = threadIdx.x; i < kReachY * kWidth / kQuad; i += kThreads) {
    const int row = i / (kWidth / kQuad), column = i % (kWidth / kQuad) * kQuad;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      float v[kQuadReach], quad[kQuad];
      load_quad(&reach[k][row][column], v);
      convolve_quad(v, quad);
      store_quad(&rows[k][row][column], quad);
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 3; ++k) convolve_column(rows[k], strip, out[k]);
}

// Writes the gradient of a pixel's depth and silhouette and adds to the sums.
__device__ __forceinline__ void depth_gradient(const LossPlan& p, const float* rendered, float z,
                                               const LossOutputs& outputs, int64_t at,
                                               LossSums& sums) {
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  const float silhouette = rendered[kPlaneSilhouette * plane + at];
  const bool seen = is_measured(z);
  const bool compared = seen && silhouette > p.weights.silhouette_threshold;
  const float inv_s = 1.0f / (compared ? silhouette : 1.0f);
  const float expected = rendered[kPlaneDepth * plane + at] * inv_s;
  const float residual = compared ? expected - z : 0.0f;
  const float scale = static_cast<float>(p.weights.depth / static_cast<double>(plane));
  const float coverage = static_cast<float>(p.weights.silhouette / max(*p.measured, 1u));
  const float g = scale * sign(residual) * inv_s;
  outputs.gradient[kPlaneDepth * plane + at] = g;
  outputs.gradient[kPlaneSilhouette * plane + at] =
      (compared ? -g * expected : 0.0f) - (seen ? coverage : 0.0f);
  sums.depth += fabsf(residual);
  if (seen) sums.silhouette += 1.0f - silhouette;
}

template <bool kWithSsim>
__global__ void __launch_bounds__(kThreads)
    loss_gradient(const LossPlan p, const float* __restrict__ rendered, const LossOutputs outputs) {
  __shared__ double shared[kThreads / 32];
  wait_for_kernel_before();
  if (p.stop && *p.stop) return;
  const LossTarget target = *p.target;
  const int colour = blockIdx.z;
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  const double values = kColours * static_cast<double>(plane);
  const float l1_scale = static_cast<float>((1 - p.weights.ssim) / values);
  const float ssim_scale = static_cast<float>(-p.weights.ssim / values);
  const Strip strip(p);
  float maps[3][kPixels];
  if constexpr (kWithSsim) {
    __shared__ alignas(16) Reach reach[3];
    __shared__ alignas(16) Rows rows[3];
    ssim_gradient(p, reach, rows, strip, maps);
  }
  LossSums sums;
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    if (j >= strip.count) break;
    const int64_t pixel = static_cast<int64_t>(strip.y + j) * p.width + strip.x;
    const int64_t at = colour * plane + pixel;
    const float c = rendered[at], b = load_colour(target, at);
    const float a = c * target.gain + target.bias, residual = a - b;
    float g = l1_scale * sign(residual);
    if constexpr (kWithSsim)
      g += ssim_scale * (maps[0][j] + 2.0f * ((a + b) * maps[1][j] + residual * maps[2][j]));
    sums.l1 += fabsf(residual);
    sums.grad_gain += g * c;
    sums.grad_bias += g;
    outputs.gradient[at] = target.gain * g;
    if (colour == 0) depth_gradient(p, rendered, target.depth[pixel], outputs, pixel, sums);
  }
  LossSums total;
  total.l1 = block_sum(sums.l1, shared);
  total.grad_gain = block_sum(sums.grad_gain, shared);
  total.grad_bias = block_sum(sums.grad_bias, shared);
  if (colour == 0) {
    total.depth = block_sum(sums.depth, shared);
    total.silhouette = block_sum(sums.silhouette, shared);
  }
  if (threadIdx.x == 0) p.sums[p.block()] = total;
}

__global__ void __launch_bounds__(kThreads)
    map_colour_error(const LossPlan p, const float* __restrict__ rendered, float* error) {
  wait_for_kernel_before();
  const LossTarget target = *p.target;
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= plane) return;
  float sum = 0;
  for (int64_t at = i; at < kColours * plane; at += plane)
    sum += fabsf(rendered[at] * target.gain + target.bias - load_colour(target, at));
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
  p.blocks_x = (width + kWidth - 1) / kWidth;
  p.blocks_y = (height + kHeight - 1) / kHeight;
  if (weights.ssim != 0) maps_.reserve(size_t{9} * width * height);
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
    launch_early("map_ssim_derivatives", map_ssim_derivatives, grid, kThreads, 0, stream, p,
                 rendered);
    launch_early("loss_gradient", loss_gradient<true>, grid, kThreads, 0, stream, p, rendered,
                 outputs);
  } else {
    launch_early("count_measured", count_measured, std::min(p.blocks(), 128), kThreads, 0, stream,
                 p);
    launch_early("loss_gradient", loss_gradient<false>, grid, kThreads, 0, stream, p, rendered,
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
