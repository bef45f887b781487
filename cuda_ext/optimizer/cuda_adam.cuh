// The update of one sphere, for the optimiser and for the fused step.
#pragma once

#include <cstdint>

#include "optimizer/adam.h"

namespace gsslam {

struct AdamCorrection {
  float first, second;
};

// Counts a step of sphere i and looks its bias corrections up.
__device__ __forceinline__ AdamCorrection count_step(const AdamRates& rates, int32_t* steps,
                                                     int64_t i) {
  int32_t step = steps[i];
  if (step < INT32_MAX) steps[i] = ++step;
  if (step >= rates.table_size) return {1, 1};
  return {__ldg(rates.correction1 + step), __ldg(rates.correction2 + step)};
}

// What the optimiser keeps of kRows rows of a sphere. All loads come before the first store, so
// that they are on their way together.
template <int kRows>
struct AdamRows {
  float parameter[kRows], first[kRows], second[kRows], rate[kRows];

  __device__ __forceinline__ void load(const AdamSpheres& s, int first_row, int64_t i) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = (first_row + k) * s.capacity + i;
      parameter[k] = s.parameters[at];
      first[k] = s.first_moment[at];
      second[k] = s.second_moment[at];
      rate[k] = __ldg(s.learning_rates + first_row + k);
    }
  }
  __device__ __forceinline__ void step(const AdamSpheres& s, const AdamRates& rates,
                                       const AdamCorrection& correction, int first_row, int64_t i,
                                       const float (&g)[kRows]) const {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = (first_row + k) * s.capacity + i;
      const float m = first[k] + rates.weight1 * (g[k] - first[k]);
      const float v = second[k] + rates.weight2 * (g[k] * g[k] - second[k]);
      s.first_moment[at] = m;
      s.second_moment[at] = v;
      s.parameters[at] = parameter[k] - rate[k] * correction.first * m /
                                            (sqrtf(v) * correction.second + rates.epsilon);
    }
  }
};

}  // namespace gsslam
