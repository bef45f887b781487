// Adam on CUDA: a plan that holds the tables of bias corrections, on the device.
#pragma once

#include <cuda_runtime.h>

#include "common/cuda_memory.h"
#include "optimizer/adam.h"
#include "optimizer/adam_tables.h"

namespace gsslam {

class CudaAdam {
 public:
  CudaAdam(double beta1, double beta2, double epsilon, int device);

  // As CpuAdam; learning_rates are on the device too. Waits for the counts.
  AdamCounts step(const AdamSpheres& spheres, cudaStream_t stream);

  // For fused steps.
  const AdamRates& rates() const { return rates_; }

 private:
  int device_;
  AdamRates rates_{};  // the tables are on the device
  DeviceBuffer<float> corrections_;
  DeviceBuffer<unsigned long long> counts_;  // stepped, skipped
};

}  // namespace gsslam
