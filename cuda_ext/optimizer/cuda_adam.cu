#include "common/reduce.cuh"
#include "optimizer/cuda_adam.cuh"
#include "optimizer/cuda_adam.h"

namespace gsslam {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    step_spheres(const AdamSpheres s, const AdamRates rates, unsigned long long* counts) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  bool touched = false, finite = true;
  if (i < s.count) {
    for (int row = 0; row < s.rows; ++row) {
      const float g = s.gradient[row * s.capacity + i];
      touched |= g != 0;
      finite &= fabsf(g) < kMaxGradient;  // false for NaN
    }
  }
  const bool step = touched && finite;
  if (step) {
    const AdamCorrection correction = count_step(rates, s.steps, i);
    for (int row = 0; row < s.rows; ++row) {
      AdamRows<1> rows;
      rows.load(s, row, i);
      rows.step(s, rates, correction, row, i, {s.gradient[row * s.capacity + i]});
    }
  }
  if (touched)
    for (int row = 0; row < s.rows; ++row) s.gradient[row * s.capacity + i] = 0;
  const unsigned stepped = __popc(__ballot_sync(kFullWarp, step));
  const unsigned skipped = __popc(__ballot_sync(kFullWarp, touched && !finite));
  if ((threadIdx.x & 31) != 0) return;
  if (stepped) atomicAdd(&counts[0], static_cast<unsigned long long>(stepped));
  if (skipped) atomicAdd(&counts[1], static_cast<unsigned long long>(skipped));
}

}  // namespace

CudaAdam::CudaAdam(double beta1, double beta2, double epsilon, int device) : device_(device) {
  const AdamTables tables(beta1, beta2);
  const DeviceGuard guard(device);
  const size_t size = tables.correction1.size();
  corrections_.reserve(2 * size);
  counts_.reserve(2);
  float* const first = corrections_.get();
  float* const second = first + size;
  GSSLAM_CUDA(
      cudaMemcpy(first, tables.correction1.data(), size * sizeof(float), cudaMemcpyHostToDevice));
  GSSLAM_CUDA(
      cudaMemcpy(second, tables.correction2.data(), size * sizeof(float), cudaMemcpyHostToDevice));
  rates_ = {static_cast<float>(1 - beta1),
            static_cast<float>(1 - beta2),
            static_cast<float>(epsilon),
            first,
            second,
            static_cast<int32_t>(size)};
}

AdamCounts CudaAdam::step(const AdamSpheres& spheres, cudaStream_t stream) {
  if (spheres.count == 0) return {};
  const DeviceGuard guard(device_);
  GSSLAM_CUDA(cudaMemsetAsync(counts_.get(), 0, 2 * sizeof(unsigned long long), stream));
  step_spheres<<<blocks_for(spheres.count, kThreads), kThreads, 0, stream>>>(spheres, rates_,
                                                                             counts_.get());
  GSSLAM_LAUNCHED(step_spheres);
  struct Counts {
    unsigned long long stepped, skipped;
  };
  const Counts counts = download(reinterpret_cast<const Counts*>(counts_.get()), stream);
  return {static_cast<int64_t>(counts.stepped), static_cast<int64_t>(counts.skipped)};
}

}  // namespace gsslam
