#include <algorithm>

#include "attention/cuda_attention_launch.cuh"
#include "attention/hopper_forward.h"
#include "common/cuda_memory.h"

namespace gsslam {
namespace {

// Output and log-sum-exp of a row out of those of its splits, in order; a warp for each row.
template <typename T>
__global__ void __launch_bounds__(256) combine_splits(const float* parts, int splits, int64_t rows,
                                                      int e, T* output, float* log_sum_exp) {
  const int64_t row = blockIdx.x * 8ll + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const int64_t step = rows * (e + 1);
  const float* part = parts + row * (e + 1);
  float most = -INFINITY, total = 0;
  for (int i = 0; i < splits; ++i) most = fmaxf(most, part[i * step + e]);
  const float reference = most == -INFINITY ? 0 : most;
  for (int i = 0; i < splits; ++i) total += exp2f(kLog2E * (part[i * step + e] - reference));
  const float inverse = total == 0 ? 0 : 1 / total;
  for (int c = 2 * lane; c < e; c += 64) {
    float x = 0, y = 0;
    for (int i = 0; i < splits; ++i) {
      const float weight = exp2f(kLog2E * (part[i * step + e] - reference)) * inverse;
      x += weight * part[i * step + c];
      y += weight * part[i * step + c + 1];
    }
    store_pair(output + row * e + c, x, y);
  }
  if (lane == 0) log_sum_exp[row] = total == 0 ? -INFINITY : reference + logf(total);
}

template <typename T>
void forward(const CudaAttentionInput& input, void* output, float* log_sum_exp, float* parts,
             int device, cudaStream_t stream) {
  PassArguments<T> a = pass_arguments<T>(input);
  a.log_sum_exp = log_sum_exp;
  a.result = static_cast<T*>(output);
  a.parts = parts;
  a.splits = pass_splits<Pass::output>(input.shape, device);
  launch_pass<Pass::output>(a, device, stream);
  const AttentionShape& s = input.shape;
  const int64_t rows = s.batch * s.heads * s.queries;
  if (a.splits == 1 || rows == 0) return;
  combine_splits<<<blocks_for(rows, 8), 256, 0, stream>>>(
      parts, a.splits, rows, static_cast<int>(s.value_dim), a.result, log_sum_exp);
  GSSLAM_LAUNCHED(combine_splits);
}

}  // namespace

int64_t cuda_attention_forward_parts(const AttentionShape& shape, int device) {
  if (hopper_forward_takes(shape, device)) return hopper_forward_parts(shape, device);
  return pass_part_size<Pass::output>(shape, device);
}

void cuda_attention_forward(const CudaAttentionInput& input, void* output, float* log_sum_exp,
                            float* parts, int device, cudaStream_t stream) {
  const DeviceGuard guard(device);
  if (hopper_forward_takes(input.shape, device))
    hopper_forward(input, output, log_sum_exp, parts, device, stream);
  else if (input.bfloat16)
    forward<__nv_bfloat16>(input, output, log_sum_exp, parts, device, stream);
  else
    forward<__half>(input, output, log_sum_exp, parts, device, stream);
}

}  // namespace gsslam
