#include "common/cuda_launch.h"
#include "common/cuda_memory.h"
#include "rasterize/cuda_gather.cuh"
#include "rasterize/cuda_rasterizer.h"

namespace gsslam {
namespace {

__global__ void __launch_bounds__(kGatherThreads)
    gather_gradients(const RasterPlan p, const CudaBackward back, float* grad_parameters,
                     float* statistics, float decay, double* pose_partials) {
  wait_for_kernel_before();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kGatherThreads + threadIdx.x;
  const bool live = i < p.state->count && !p.state->overflow;
  const uint32_t cells = live ? p.cell_counts[i] : 0;
  SphereGradient g{};
  Sphere sphere{};
  if (cells) {
    const uint32_t first = p.first_cell[i];
    float total[kSums];
    sum_slots(p, back, first, cells, total);
    const SphereMatrix spheres{p.parameters, p.capacity, p.max_count};
    sphere = spheres.at(i);
    g = chain_rule(p.state->view, sphere, p.splats[i], total);
    float* out = grad_parameters + i;
    for (int k = 0; k < 3; ++k) out[(kX + k) * p.capacity] += g.point[k];
    out[kLogRadius * p.capacity] += g.log_radius;
    out[kOpacityLogit * p.capacity] += g.opacity_logit;
    for (int k = 0; k < 3; ++k) out[(kRed + k) * p.capacity] += total[kSumRed + k];
    for (int d = 0; d < p.num_features; ++d)
      out[(kFeature + d) * p.capacity] += sum_slots_at(back, first, cells, kSums + d);
    if (statistics) {
      float pass[kStatistics];
      gather_statistics(p, back, first, cells, pass);
      keep_statistics(pass, decay, statistics + i, p.capacity);
    }
  }
  store_pose_partial<kGatherThreads>(g.camera, sphere, pose_partials);
}

__global__ void sum_pose(const double* partials, int64_t count, double* total) {
  __shared__ double shared[32];
  wait_for_kernel_before();
  for (int k = 0; k < kPoseSums; ++k) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partials[i * kPoseSums + k];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) total[k] = sum;
  }
}

}  // namespace

void launch_gather(const RasterPlan& plan, const CudaBackward& back, float* grad_parameters,
                   float* statistics, float decay, double* pose_partials, cudaStream_t stream) {
  const unsigned blocks = blocks_for(plan.max_count, kGatherThreads);
  if (blocks == 0) return;
  launch_early("gather_gradients", gather_gradients, blocks, kGatherThreads, 0, stream, plan, back,
               grad_parameters, statistics, decay, pose_partials);
}

void launch_sum_pose(const double* partials, size_t count, double* total, cudaStream_t stream) {
  launch_early("sum_pose", sum_pose, 1, 256, 0, stream, partials, count, total);
}

}  // namespace gsslam
