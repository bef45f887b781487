// The linear layer with 4-bit weights and 16-bit inputs on a GPU with tensor cores (compute
// capability 8.0 or more); gsslam/quant/reference.py specifies it. The same bytes every time, and
// those of a row do not depend on how many rows there are.
#pragma once

#include <cuda_runtime.h>

#include "quant/linear.h"

namespace gsslam {

// As gsslam/quant/fragments.py lays them out, all on the device and aligned to 16 bytes.
struct FragmentWeights {
  const uint8_t* codes;  // (tiles, groups, 1024)
  const float* scales;   // (tiles, groups, 8, 2)
  const uint8_t* zeros;  // (tiles, groups, 8, 2), 0 to 15
  const float* bias;     // (outputs), or null
  int64_t outputs, tiles, groups;
};

// Writes y (rows, outputs) for x (rows, inputs), aligned to 16 bytes, inputs a multiple of 8; both
// are bfloat16 or half precision.
void cuda_linear(const FragmentWeights& weights, bool bfloat16, const void* x, int64_t rows,
                 int64_t inputs, void* y, int device, cudaStream_t stream);

}  // namespace gsslam
