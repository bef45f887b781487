// Attention on a GPU with tensor cores (compute capability 8.0 or more): 16-bit tensors, sums in
// float32. All tensors are contiguous, channels a multiple of 8; the same bytes every time.
#pragma once

#include <cuda_runtime.h>

#include "attention/attention.h"

namespace gsslam {

struct CudaAttentionInput {
  AttentionShape shape;
  AttentionMask mask;  // key lengths on the device
  float scale;
  bool bfloat16;  // else half precision
  const void *query, *key, *value;
};

// Floats of memory for parts of sums, where one side has too few rows to keep the GPU busy.
int64_t cuda_attention_forward_parts(const AttentionShape& shape, int device);
int64_t cuda_attention_backward_parts(const AttentionShape& shape, int device);

// Writes the output and the float32 log-sum-exp.
void cuda_attention_forward(const CudaAttentionInput& input, void* output, float* log_sum_exp,
                            float* parts, int device, cudaStream_t stream);

struct CudaAttentionGradients {
  const void* output;
  const float* log_sum_exp;
  const void* grad_output;
  const float* grad_log_sum_exp;  // may be null
  float *delta, *parts;           // (batch, heads, queries), for the pass's own use; see above
  void *grad_query, *grad_key, *grad_value;
};

void cuda_attention_backward(const CudaAttentionInput& input,
                             const CudaAttentionGradients& gradients, int device,
                             cudaStream_t stream);

}  // namespace gsslam
