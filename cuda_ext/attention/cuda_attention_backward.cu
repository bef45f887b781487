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

template <typename T>
void backward(const CudaAttentionInput& input, const CudaAttentionGradients& g, int device,
              cudaStream_t stream) {
  PassArguments<T> a = pass_arguments<T>(input);
  a.grad_output = static_cast<const T*>(g.grad_output);
  a.log_sum_exp = const_cast<float*>(g.log_sum_exp);
  a.delta = g.delta;
  const AttentionShape& s = input.shape;
  const int64_t rows = s.batch * s.heads * s.queries;
  if (rows > 0) {
    attention_delta<<<blocks_for(rows, 8), 256, 0, stream>>>(
        static_cast<const T*>(g.output), a.grad_output, g.grad_log_sum_exp, rows,
        static_cast<int>(s.value_dim), g.delta);
    GSSLAM_LAUNCHED(attention_delta);
  }
  a.result = static_cast<T*>(g.grad_query);
  launch_pass<Pass::query>(a, device, stream);
  a.result = static_cast<T*>(g.grad_key);
  launch_pass<Pass::key>(a, device, stream);
  a.result = static_cast<T*>(g.grad_value);
  launch_pass<Pass::value>(a, device, stream);
}

}  // namespace

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
