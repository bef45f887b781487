// The mapping loss on the CPU: a plan that owns its buffers, so that a loop of views allocates
// nothing.
#pragma once

#include <vector>

#include "common/vector_bytes.h"
#include "losses/cpu_loss_band.h"

namespace gsslam {

class CpuImageLoss {
 public:
  // Compares gain * rendered + bias with the observed image, and writes the gradient with respect
  // to the rendered planes and the error. The same bytes for any number of threads.
  LossValue evaluate(const LossImages& images, double gain, double bias, const LossWeights& weights,
                     const LossOutputs& outputs);

  size_t bytes() const { return vector_bytes(maps_, dssim_sums_, band_sums_); }

 private:
  SsimMaps maps_for(const LossImages& images);
  double mean_dssim(const LossImages& images, const LossScales& scales, const SsimMaps& maps);

  int64_t maps_width_ = 0, maps_height_ = 0;  // that the zeros around the maps are made for
  std::vector<float> maps_;
  std::vector<double> dssim_sums_;   // by band and colour
  std::vector<LossSums> band_sums_;  // by band
};

}  // namespace gsslam
