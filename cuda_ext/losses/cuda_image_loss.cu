// The loss on blocks of 32 x 16 pixels. Windows are separable: rows first, from shared memory to
// shared memory, then columns to registers. Formulas: cpu_loss_band.cpp and gsslam/losses.py.
#include "losses/cuda_image_loss.h"

#include <algorithm>

#include "common/reduce.cuh"
#include "losses/cuda_loss_total.cuh"
#include "rasterize/constants.h"

namespace gsslam {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 32, kHeight = 16;
constexpr int kReachX = kWidth + 2 * kWindowRadius, kReachY = kHeight + 2 * kWindowRadius;
constexpr int kPixels = kWidth * kHeight / kThreads;  // of a thread

__device__ __forceinline__ float weight(int i) {
  // A window weight by position, from a constant expression once the loop is unrolled.
  constexpr float w[kWindow] = {kWindowWeights[0], kWindowWeights[1], kWindowWeights[2],
                                kWindowWeights[3], kWindowWeights[4], kWindowWeights[5],
                                kWindowWeights[4], kWindowWeights[3], kWindowWeights[2],
                                kWindowWeights[1], kWindowWeights[0]};
  return w[i];
}

__device__ __forceinline__ float load_colour(const LossTarget& t, int64_t at) {
  return t.colour ? __ldg(t.colour + at) : static_cast<float>(__ldg(t.colour_bytes + at)) / 255.0f;
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

__global__ void __launch_bounds__(kThreads)
    map_ssim_derivatives(const LossPlan p, const float* __restrict__ rendered) {
  __shared__ float sum[kReachY][kReachX], difference[kReachY][kReachX];
  __shared__ float rows[4][kReachY][kWidth];
  __shared__ double shared[kThreads / 32];
  if (p.stop && *p.stop) return;
  const LossTarget target = *p.target;
  const int colour = blockIdx.z, x0 = blockIdx.x * kWidth, y0 = blockIdx.y * kHeight;
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  for (int i = threadIdx.x; i < kReachX * kReachY; i += kThreads) {
    const int x = x0 - kWindowRadius + i % kReachX, y = y0 - kWindowRadius + i / kReachX;
    float s = 0, d = 0;
    if (x >= 0 && x < p.width && y >= 0 && y < p.height) {
      const int64_t at = colour * plane + static_cast<int64_t>(y) * p.width + x;
      const float a = rendered[at] * target.gain + target.bias, b = load_colour(target, at);
      s = a + b;
      d = a - b;
    }
    sum[i / kReachX][i % kReachX] = s;
    difference[i / kReachX][i % kReachX] = d;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kWidth * kReachY; i += kThreads) {
    const int x = i % kWidth, y = i / kWidth;
    float m[4] = {};
#pragma unroll
    for (int k = 0; k < kWindow; ++k) {
      const float w = weight(k), s = sum[y][x + k], d = difference[y][x + k];
      m[0] += w * s;
      m[1] += w * (s * s);
      m[2] += w * d;
      m[3] += w * (d * d);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) rows[k][y][x] = m[k];
  }
  __syncthreads();
  double dssim = 0;
  unsigned measured = 0;
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    const int tx = threadIdx.x % kWidth, ty = threadIdx.x / kWidth + j * (kThreads / kWidth);
    const int x = x0 + tx, y = y0 + ty;
    float m[4] = {};
#pragma unroll
    for (int k = 0; k < kWindow; ++k)
#pragma unroll
      for (int which = 0; which < 4; ++which) m[which] += weight(k) * rows[which][ty + k][tx];
    if (x >= p.width || y >= p.height) continue;
    const Derivatives out = ssim_derivatives(m[0], m[1], m[2], m[3]);
    dssim += out.dssim;
    float* map = p.maps + colour * 3 * plane + static_cast<int64_t>(y) * p.width + x;
    map[0] = out.mean;
    map[plane] = out.sum_square;
    map[2 * plane] = out.difference_square;
    if (colour == 0) measured += is_measured(target.depth[static_cast<int64_t>(y) * p.width + x]);
  }
  measured = warp_sum(measured);
  if ((threadIdx.x & 31) == 0 && measured) atomicAdd(p.measured, measured);
  const double total = block_sum(dssim, shared);
  if (threadIdx.x == 0)
    p.dssim[(colour * p.blocks_y + blockIdx.y) * p.blocks_x + blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads) count_measured(const LossPlan p) {
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

// Derivative of the summed SSIM with respect to the compared colour, at the thread's pixels.
__device__ void ssim_gradient(const LossPlan& p, int colour, float (&reach)[3][kReachY][kReachX],
                              float (&rows)[3][kReachY][kWidth], float (&out)[kPixels][3]) {
  const int x0 = blockIdx.x * kWidth, y0 = blockIdx.y * kHeight;
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  const float* maps = p.maps + colour * 3 * plane;
  __syncthreads();
  for (int i = threadIdx.x; i < kReachX * kReachY; i += kThreads) {
    const int rx = i % kReachX, ry = i / kReachX;
    const int x = x0 - kWindowRadius + rx, y = y0 - kWindowRadius + ry;
    const bool inside = x >= 0 && x < p.width && y >= 0 && y < p.height;
    const int64_t at = static_cast<int64_t>(y) * p.width + x;
#pragma unroll
    for (int k = 0; k < 3; ++k) reach[k][ry][rx] = inside ? maps[k * plane + at] : 0.0f;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kWidth * kReachY; i += kThreads) {
    const int x = i % kWidth, y = i / kWidth;
    float m[3] = {};
#pragma unroll
    for (int k = 0; k < kWindow; ++k)
#pragma unroll
      for (int which = 0; which < 3; ++which) m[which] += weight(k) * reach[which][y][x + k];
#pragma unroll
    for (int which = 0; which < 3; ++which) rows[which][y][x] = m[which];
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    const int tx = threadIdx.x % kWidth, ty = threadIdx.x / kWidth + j * (kThreads / kWidth);
#pragma unroll
    for (int which = 0; which < 3; ++which) out[j][which] = 0;
#pragma unroll
    for (int k = 0; k < kWindow; ++k)
#pragma unroll
      for (int which = 0; which < 3; ++which)
        out[j][which] += weight(k) * rows[which][ty + k][tx];
  }
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
  constexpr int kReach = kWithSsim ? kReachY : 1;
  __shared__ float reach[3][kReach][kReachX];
  __shared__ float rows[3][kReach][kWidth];
  __shared__ double shared[kThreads / 32];
  if (p.stop && *p.stop) return;
  const LossTarget target = *p.target;
  const int64_t plane = static_cast<int64_t>(p.width) * p.height;
  const double values = kColours * static_cast<double>(plane);
  const float l1_scale = static_cast<float>((1 - p.weights.ssim) / values);
  const float ssim_scale = static_cast<float>(-p.weights.ssim / values);
  LossSums sums;
  float error[kPixels] = {};
  for (int colour = 0; colour < kColours; ++colour) {
    float maps[kPixels][3];
    if constexpr (kWithSsim) ssim_gradient(p, colour, reach, rows, maps);
#pragma unroll
    for (int j = 0; j < kPixels; ++j) {
      const int x = blockIdx.x * kWidth + threadIdx.x % kWidth;
      const int y = blockIdx.y * kHeight + threadIdx.x / kWidth + j * (kThreads / kWidth);
      if (x >= p.width || y >= p.height) continue;
      const int64_t at = colour * plane + static_cast<int64_t>(y) * p.width + x;
      const float c = rendered[at], b = load_colour(target, at);
      const float a = c * target.gain + target.bias, residual = a - b;
      float g = l1_scale * sign(residual);
      if constexpr (kWithSsim)
        g += ssim_scale * (maps[j][0] + 2.0f * ((a + b) * maps[j][1] + residual * maps[j][2]));
      sums.l1 += fabsf(residual);
      sums.grad_gain += g * c;
      sums.grad_bias += g;
      error[j] += fabsf(residual) * (1.0f / kColours);
      outputs.gradient[at] = target.gain * g;
    }
  }
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    const int x = blockIdx.x * kWidth + threadIdx.x % kWidth;
    const int y = blockIdx.y * kHeight + threadIdx.x / kWidth + j * (kThreads / kWidth);
    if (x >= p.width || y >= p.height) continue;
    const int64_t at = static_cast<int64_t>(y) * p.width + x;
    if (outputs.error) outputs.error[at] = error[j];
    depth_gradient(p, rendered, target.depth[at], outputs, at, sums);
  }
  LossSums total;
  total.l1 = block_sum(sums.l1, shared);
  total.depth = block_sum(sums.depth, shared);
  total.silhouette = block_sum(sums.silhouette, shared);
  total.grad_gain = block_sum(sums.grad_gain, shared);
  total.grad_bias = block_sum(sums.grad_bias, shared);
  if (threadIdx.x == 0) p.sums[blockIdx.y * p.blocks_x + blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads) add_up_loss(const LossPlan p, LossValue* value) {
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
  sums_.reserve(p.blocks());
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
  const dim3 grid(p.blocks_x, p.blocks_y, 1), colours(p.blocks_x, p.blocks_y, kColours);
  if (p.weights.ssim != 0) {
    map_ssim_derivatives<<<colours, kThreads, 0, stream>>>(p, rendered);
    GSSLAM_LAUNCHED(map_ssim_derivatives);
    loss_gradient<true><<<grid, kThreads, 0, stream>>>(p, rendered, outputs);
  } else {
    count_measured<<<std::min(p.blocks(), 128), kThreads, 0, stream>>>(p);
    GSSLAM_LAUNCHED(count_measured);
    loss_gradient<false><<<grid, kThreads, 0, stream>>>(p, rendered, outputs);
  }
  GSSLAM_LAUNCHED(loss_gradient);
}

void launch_loss_value(const LossPlan& plan, LossValue* value, cudaStream_t stream) {
  add_up_loss<<<1, kThreads, 0, stream>>>(plan, value);
  GSSLAM_LAUNCHED(add_up_loss);
}

}  // namespace gsslam
