// The linear layer's two loops, one set of functions for each instruction set. Beside the ones that
// common/isa.h chooses from, there are sets with integer dot products ("VNNI").
#pragma once

#include "common/isa.h"
#include "quant/linear.h"

namespace gsslam {

struct RowOutputs {
  int8_t* values;
  float *scales, *sums;
};

#define GSSLAM_DECLARE(isa)                                                                 \
  namespace isa {                                                                           \
  /* Quantises a row, times `factors` unless null, and fills it up with zeros. */           \
  void quantize_row(const float* row, const float* factors, int64_t inputs, int64_t groups, \
                    const RowOutputs& out);                                                 \
  /* Writes the outputs of a tile for all rows. */                                          \
  void linear_tile(const PackedWeights& weights, const QuantizedRows& rows, int64_t tile,   \
                   float* outputs);                                                         \
  }
GSSLAM_FOR_EACH_ISA(GSSLAM_DECLARE)
#ifdef GSSLAM_AVX512VNNI
GSSLAM_DECLARE(avx512vnni)
#endif
#ifdef GSSLAM_AVXVNNI
GSSLAM_DECLARE(avxvnni)
#endif
#undef GSSLAM_DECLARE

}  // namespace gsslam
