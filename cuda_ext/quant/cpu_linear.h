// The quantised linear layer on the CPU; the same bytes for any number of threads.
#pragma once

#include "quant/linear.h"

namespace gsslam {

// Writes outputs (rows, weights.outputs) for inputs (rows, weights.inputs), times `factors`
// (weights.inputs) unless null. `vnni` allows the processor's integer dot products.
void linear(const PackedWeights& weights, const float* inputs, const float* factors, int64_t rows,
            bool vnni, float* outputs);

// Name of the set of functions that it takes.
const char* linear_kernel(bool vnni);

}  // namespace gsslam
