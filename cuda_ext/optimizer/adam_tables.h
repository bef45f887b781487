// The tables of Adam's bias corrections, for the CPU and for CUDA.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <stdexcept>
#include <vector>

namespace gsslam {

inline constexpr double kMaxBeta = 0.9999;  // bounds the tables: 1.4 MB

struct AdamTables {
  std::vector<float> correction1, correction2;  // see AdamRates

  // Raises std::invalid_argument for betas outside of [0, kMaxBeta].
  AdamTables(double beta1, double beta2) {
    for (double beta : {beta1, beta2})
      if (!(beta >= 0 && beta <= kMaxBeta)) throw std::invalid_argument("Adam beta out of range");
    // Until both corrections are 1 to the precision of a float.
    double power1 = 1, power2 = 1;
    do {
      correction1.push_back(power1 < 1 ? static_cast<float>(1 / (1 - power1)) : 1);
      correction2.push_back(power2 < 1 ? static_cast<float>(1 / std::sqrt(1 - power2)) : 1);
      power1 *= beta1;
      power2 *= beta2;
    } while (std::max(power1, power2) > 0x1p-25);
  }
};

}  // namespace gsslam
