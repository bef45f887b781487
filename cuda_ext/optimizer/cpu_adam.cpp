#include "optimizer/cpu_adam.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/isa.h"
#include "common/thread_pool.h"
#include "optimizer/cpu_adam_chunk.h"

namespace gsslam {

CpuAdam::CpuAdam(double beta1, double beta2, double epsilon)
    : weight1_(static_cast<float>(1 - beta1)),
      weight2_(static_cast<float>(1 - beta2)),
      epsilon_(static_cast<float>(epsilon)) {
  for (double beta : {beta1, beta2})
    if (!(beta >= 0 && beta <= kMaxBeta)) throw std::invalid_argument("Adam beta out of range");
  // Until both corrections are 1 to the precision of a float.
  double power1 = 1, power2 = 1;
  do {
    correction1_.push_back(power1 < 1 ? static_cast<float>(1 / (1 - power1)) : 1);
    correction2_.push_back(power2 < 1 ? static_cast<float>(1 / std::sqrt(1 - power2)) : 1);
    power1 *= beta1;
    power2 *= beta2;
  } while (std::max(power1, power2) > 0x1p-25);
}

AdamCounts CpuAdam::step(const AdamSpheres& spheres) {
  const AdamRates rates{weight1_,
                        weight2_,
                        epsilon_,
                        correction1_.data(),
                        correction2_.data(),
                        static_cast<int32_t>(correction1_.size())};
  const auto adam_chunk = GSSLAM_DISPATCH(adam_chunk);
  chunk_counts_.resize((spheres.count + kAdamChunk - 1) / kAdamChunk);
  parallel_for(chunk_counts_.size(),
               [&](size_t chunk) { chunk_counts_[chunk] = adam_chunk(spheres, rates, chunk); });
  AdamCounts total;
  for (const AdamCounts& counts : chunk_counts_) {
    total.stepped += counts.stepped;
    total.skipped += counts.skipped;
  }
  return total;
}

}  // namespace gsslam
