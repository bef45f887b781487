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

__device__ __forceinline__ void adam_entry(const AdamSpheres& s, const AdamRates& rates,
                                           const AdamCorrection& correction, int row, int64_t i,
                                           float g) {
  const int64_t at = row * s.capacity + i;
  const float m0 = s.first_moment[at], v0 = s.second_moment[at];
  const float m = m0 + rates.weight1 * (g - m0);
  const float v = v0 + rates.weight2 * (g * g - v0);
  s.first_moment[at] = m;
  s.second_moment[at] = v;
  s.parameters[at] -= s.learning_rates[row] * correction.first * m /
                      (sqrtf(v) * correction.second + rates.epsilon);
}

}  // namespace gsslam
