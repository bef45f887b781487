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

// Parts that the keys are cut into, so that few queries still keep the whole GPU busy.
int cuda_attention_splits(const AttentionShape& shape, int device);

// Writes the output and the float32 log-sum-exp. `parts` holds, if there is more than one split,
// float32 (splits, batch * heads * queries, value_dim + 1).
void cuda_attention_forward(const CudaAttentionInput& input, void* output, float* log_sum_exp,
                            float* parts, int splits, int device, cudaStream_t stream);

struct CudaAttentionGradients {
  const void* output;
  const float* log_sum_exp;
  const void* grad_output;
  const float* grad_log_sum_exp;  // may be null
  float* delta;                   // (batch, heads, queries), for the pass's own use
  void *grad_query, *grad_key, *grad_value;
};

void cuda_attention_backward(const CudaAttentionInput& input,
                             const CudaAttentionGradients& gradients, int device,
                             cudaStream_t stream);

}  // namespace gsslam
