// Attention's forward pass on Hopper (compute capability 9.0), with its own products of whole
// warpgroups; the pass for all GPUs is in cuda_attention_forward.cu.
#pragma once

#include "attention/cuda_attention.h"

namespace gsslam {

#ifdef GSSLAM_HOPPER
// Whether the GPU and the sizes are for it.
bool hopper_forward_takes(const AttentionShape& shape, int device);

int64_t hopper_forward_parts(const AttentionShape& shape, int device);

void hopper_forward(const CudaAttentionInput& input, void* output, float* log_sum_exp, float* parts,
                    int device, cudaStream_t stream);
#else
inline bool hopper_forward_takes(const AttentionShape&, int) { return false; }
inline int64_t hopper_forward_parts(const AttentionShape&, int) { return 0; }
inline void hopper_forward(const CudaAttentionInput&, void*, float*, float*, int, cudaStream_t) {}
#endif

}  // namespace gsslam
