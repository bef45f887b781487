#include "optimizer/cpu_adam.h"

#include "common/isa.h"
#include "common/thread_pool.h"
#include "optimizer/cpu_adam_chunk.h"

namespace gsslam {

CpuAdam::CpuAdam(double beta1, double beta2, double epsilon)
    : weight1_(static_cast<float>(1 - beta1)),
      weight2_(static_cast<float>(1 - beta2)),
      epsilon_(static_cast<float>(epsilon)),
      tables_(beta1, beta2) {}

AdamCounts CpuAdam::step(const AdamSpheres& spheres) {
  const AdamRates rates{weight1_,
                        weight2_,
                        epsilon_,
                        tables_.correction1.data(),
                        tables_.correction2.data(),
                        static_cast<int32_t>(tables_.correction1.size())};
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
