#include <algorithm>

#include "attention/cuda_attention_launch.cuh"
#include "common/cuda_memory.h"

namespace gsslam {
namespace {

// sum(output * grad_output) - grad_log_sum_exp of every row; a warp for each.
template <typename T>
__global__ void __launch_bounds__(256)
    attention_delta(const T* output, const T* grad_output, const float* grad_lse, int64_t rows,
                    int e, float* delta) {
  const int64_t row = blockIdx.x * 8ll + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float total = 0;
  for (int c = lane; c < e; c += 32)
    total += to_float(output[row * e + c]) * to_float(grad_output[row * e + c]);
  total = warp_sum(total);
  if (lane == 0) delta[row] = total - (grad_lse ? grad_lse[row] : 0);
}

// Sums of parts (splits, count), in order, times a scale.
template <typename T>
__global__ void __launch_bounds__(256)
    add_splits(const float* parts, int splits, int64_t count, float scale, T* result) {
  const int64_t i = 2 * (blockIdx.x * 256ll + threadIdx.x);
  if (i >= count) return;
  float x = 0, y = 0;
  for (int split = 0; split < splits; ++split) {
    x += parts[split * count + i];
    y += parts[split * count + i + 1];
  }
  store_pair(result + i, scale * x, scale * y);
}

template <Pass kPass, typename T>
void gradient_pass(PassArguments<T> a, void* result, int device, cudaStream_t stream) {
  a.result = static_cast<T*>(result);
  a.splits = pass_splits<kPass>(a.shape, device);
  launch_pass<kPass>(a, device, stream);
  if (a.splits == 1) return;
  const int64_t count = pass_part_size<kPass>(a.shape, device) / a.splits;
  add_splits<<<blocks_for(count, 512), 256, 0, stream>>>(
      a.parts, a.splits, count, has_second_product(kPass) ? a.scale : 1.0f, a.result);
  GSSLAM_LAUNCHED(add_splits);
}

template <typename T>
void backward(const CudaAttentionInput& input, const CudaAttentionGradients& g, int device,
              cudaStream_t stream) {
  PassArguments<T> a = pass_arguments<T>(input);
  a.grad_output = static_cast<const T*>(g.grad_output);
  a.log_sum_exp = const_cast<float*>(g.log_sum_exp);
  a.delta = g.delta;
  a.parts = g.parts;
  const AttentionShape& s = input.shape;
  const int64_t rows = s.batch * s.heads * s.queries;
  if (rows > 0) {
    attention_delta<<<blocks_for(rows, 8), 256, 0, stream>>>(
        static_cast<const T*>(g.output), a.grad_output, g.grad_log_sum_exp, rows,
        static_cast<int>(s.value_dim), g.delta);
    GSSLAM_LAUNCHED(attention_delta);
  }
  gradient_pass<Pass::query>(a, g.grad_query, device, stream);
  gradient_pass<Pass::key>(a, g.grad_key, device, stream);
  gradient_pass<Pass::value>(a, g.grad_value, device, stream);
}

}  // namespace

int64_t cuda_attention_backward_parts(const AttentionShape& shape, int device) {
  return std::max({pass_part_size<Pass::query>(shape, device),
                   pass_part_size<Pass::key>(shape, device),
                   pass_part_size<Pass::value>(shape, device)});
}

void cuda_attention_backward(const CudaAttentionInput& input,
                             const CudaAttentionGradients& gradients, int device,
                             cudaStream_t stream) {
  const DeviceGuard guard(device);
  if (input.bfloat16)
    backward<__nv_bfloat16>(input, gradients, device, stream);
  else
    backward<__half>(input, gradients, device, stream);
}

}  // namespace gsslam
