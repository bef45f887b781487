#include <cstring>

#include "common/cuda_launch.h"
#include "losses/cuda_loss_total.cuh"
#include "mapping/cuda_mapping.h"
#include "optimizer/cuda_adam.cuh"
#include "rasterize/cuda_gather.cuh"

namespace gsslam {
namespace {

constexpr int kFinishThreads = 1024;
constexpr int kGatherBlocks = 6;  // on a multiprocessor

// Points the pass at the keyframe of the next task.
__device__ void begin_step(const MappingPlan& p, const MappingOptions& options) {
  RasterState& raster = *p.raster.state;
  raster.visible = 0;
  raster.stale = 1;
  if (p.state->step >= p.state->steps) return;
  const MappingKeyframe& keyframe = p.keyframes[p.tasks[p.state->step].keyframe];
  raster.view = view_of(options.camera, keyframe.T_camera_world);
  p.state->target = {nullptr, keyframe.rgb, keyframe.depth, static_cast<float>(keyframe.gain),
                     static_cast<float>(keyframe.bias)};
}

__global__ void begin_run(const MappingPlan p, const MappingOptions options) {
  begin_step(p, options);
}

// Sums of the slots, chain rule and Adam, sphere by sphere: no gradient is written.
__global__ void __launch_bounds__(kGatherThreads, kGatherBlocks)
    step_seen_spheres(const MappingPlan p) {
  wait_for_kernel_before();
  const RasterPlan& raster = p.raster;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kGatherThreads + threadIdx.x;
  const uint32_t count = raster.state->count;
  if (raster.state->overflow || static_cast<int64_t>(blockIdx.x) * kGatherThreads >= count) return;
  const uint32_t cells = i < count ? raster.cell_counts[i] : 0;
  SphereGradient g{};
  Sphere sphere{};
  if (cells) {
    AdamRows<8> rows;
    rows.load(p.spheres, 0, i);
    const Splat splat = raster.splats[i];
    const uint32_t first = raster.first_cell[i];
    float total[kSums];
    sum_slots(raster, p.back, first, cells, total);
    sphere = {rows.parameter[kX], rows.parameter[kY], rows.parameter[kZ],
              rows.parameter[kLogRadius], rows.parameter[kOpacityLogit]};
    g = chain_rule(raster.state->view, sphere, splat, total);
    const float row[8] = {g.point[0],      g.point[1],     g.point[2],         g.log_radius,
                          g.opacity_logit, total[kSumRed], total[kSumRed + 1], total[kSumRed + 2]};
    bool touched = false, finite = true;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      touched |= row[k] != 0;
      finite &= fabsf(row[k]) < kMaxGradient;
    }
    if (touched && finite) {
      const AdamCorrection correction = count_step(p.rates, p.spheres.steps, i);
      rows.step(p.spheres, p.rates, correction, 0, i, row);
    }
    if (p.statistics) {
      float pass[kStatistics];
      gather_statistics(raster, p.back, first, cells, pass);
      keep_statistics(pass, p.decay, p.statistics + i, p.spheres.capacity);
    }
  }
  store_pose_partial<kGatherThreads>(g.camera, sphere, p.pose_partials);
}

// dL / d twist of exp(xi) T_camera_world at zero, from dL / d T (3 x 4).
__device__ void twist_gradient(const double* G, const double* T, double* gradient) {
  double moment[3][3];  // rows of T x rows of G
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      moment[i][j] = 0;
      for (int k = 0; k < 4; ++k) moment[i][j] += T[4 * i + k] * G[4 * j + k];
    }
  for (int i = 0; i < 3; ++i) gradient[i] = G[4 * i + 3];
  gradient[3] = moment[1][2] - moment[2][1];
  gradient[4] = moment[2][0] - moment[0][2];
  gradient[5] = moment[0][1] - moment[1][0];
}

__device__ void step_keyframe(MappingKeyframe& k, const double* gradient, const MappingOptions& o) {
  ++k.steps;
  const double correction1 = 1 - pow(o.beta1, static_cast<double>(k.steps));
  const double correction2 = 1 - pow(o.beta2, static_cast<double>(k.steps));
  double step[kKeyframeUnknowns];
  for (int i = 0; i < kKeyframeUnknowns; ++i) {
    k.moment1[i] += (1 - o.beta1) * (gradient[i] - k.moment1[i]);
    k.moment2[i] += (1 - o.beta2) * (gradient[i] * gradient[i] - k.moment2[i]);
    const double rate = i < 6 ? o.pose_rate : o.exposure_rate;
    step[i] = -rate * (k.moment1[i] / correction1) / (sqrt(k.moment2[i] / correction2) + o.epsilon);
  }
  move_pose(step, k.T_camera_world);
  k.gain += step[6];
  k.bias += step[7];
}

// Adds up loss and pose gradient, steps the keyframe, and begins the next step.
__global__ void __launch_bounds__(kFinishThreads)
    finish_step(const MappingPlan p, const MappingOptions options) {
  constexpr int kGroups = kFinishThreads / kPoseSums;
  __shared__ double groups[kGroups][kPoseSums];
  __shared__ double pose[kPoseSums];
  wait_for_kernel_before();
  if (p.raster.state->overflow) return;
  const LossValue value = total_loss(p.loss);
  const uint32_t step = p.state->step;
  const MappingTask task = p.tasks[step];
  const int blocks = (p.raster.state->count + kGatherThreads - 1) / kGatherThreads;
  if (task.refine && threadIdx.x < kGroups * kPoseSums) {
    const int k = threadIdx.x % kPoseSums, group = threadIdx.x / kPoseSums;
    double sum = 0;
#pragma unroll 4
    for (int i = group; i < blocks; i += kGroups) sum += p.pose_partials[i * kPoseSums + k];
    groups[group][k] = sum;
  }
  __syncthreads();
  if (task.refine && threadIdx.x < kPoseSums) {
    double sum = 0;
    for (int group = 0; group < kGroups; ++group) sum += groups[group][threadIdx.x];
    pose[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  p.losses[step] = value.total;
  if (task.refine) {
    MappingKeyframe keyframe = p.keyframes[task.keyframe];  // in registers: loads overlap
    double gradient[kKeyframeUnknowns];
    twist_gradient(pose, keyframe.T_camera_world, gradient);
    gradient[6] = value.grad_gain;
    gradient[7] = value.grad_bias;
    step_keyframe(keyframe, gradient, options);
    p.keyframes[task.keyframe] = keyframe;
  }
  p.state->step = step + 1;
  begin_step(p, options);
}

template <typename T>
void upload_all(T* to, const std::vector<T>& from, cudaStream_t stream) {
  GSSLAM_CUDA(
      cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
}

template <typename T>
void download_all(std::vector<T>& to, const T* from, cudaStream_t stream) {
  GSSLAM_CUDA(
      cudaMemcpyAsync(to.data(), from, to.size() * sizeof(T), cudaMemcpyDeviceToHost, stream));
}

}  // namespace

CudaMapping::CudaMapping(const MappingOptions& options, const std::vector<float>& learning_rates,
                         int device)
    : options_(options),
      device_(device),
      raster_(0, device),
      loss_(device),
      adam_(options.beta1, options.beta2, options.epsilon, device) {
  const DeviceGuard guard(device);
  learning_rates_.reserve(learning_rates.size());
  upload_all(learning_rates_.get(), learning_rates, nullptr);
  state_.reserve(1);
  const size_t pixels = static_cast<size_t>(options.camera.width) * options.camera.height;
  image_.reserve(kPlaneFeature * pixels);
  grad_image_.reserve(kPlaneFeature * pixels);
}

void CudaMapping::prepare(const AdamSpheres& spheres, size_t keyframes, size_t tasks,
                          const MappingStatistics& statistics, cudaStream_t stream) {
  const Pinhole& camera = options_.camera;
  raster_.prepare({spheres.parameters, spheres.capacity, spheres.count}, camera.width,
                  camera.height, kForBackward | kForGraph, stream);
  if (statistics.steps) {
    raster_.reserve_sums(kSums + kStatistics);
    error_.reserve(static_cast<size_t>(camera.width) * camera.height);
  }
  keyframes_.reserve(keyframes);
  tasks_.reserve(tasks);
  losses_.reserve(tasks);
  for (const bool with_statistics : {false, true}) {
    MappingPlan& plan = plans_[with_statistics];
    std::memset(&plan, 0, sizeof(plan));
    if (with_statistics && !statistics.steps) break;
    float* const error = with_statistics ? error_.get() : nullptr;
    plan.raster = raster_.plan();
    plan.back = raster_.backward_buffers(image_.get(), grad_image_.get(), error);
    plan.loss = loss_.prepare(camera.width, camera.height, options_.weights, &state_.get()->target,
                              &plan.raster.state->overflow, stream);
    plan.loss_outputs = {grad_image_.get(), error};
    plan.spheres = spheres;
    plan.spheres.count = 0;  // the kernels read it from the raster's state
    plan.spheres.learning_rates = learning_rates_.get();
    plan.rates = adam_.rates();
    plan.image = image_.get();
    plan.pose_partials = raster_.pose_partials();
    plan.state = state_.get();
    plan.keyframes = keyframes_.get();
    plan.tasks = tasks_.get();
    plan.losses = losses_.get();
    if (!with_statistics) continue;
    plan.statistics = statistics.kept;
    plan.decay = statistics.decay;
  }
}

void CudaMapping::launch_step(const MappingPlan& plan, cudaStream_t stream) const {
  raster_.bin(stream);
  launch_forward(plan.raster, plan.image, stream);
  launch_loss(plan.loss, plan.image, plan.loss_outputs, stream);
  launch_backward(plan.raster, plan.back, stream);
  const unsigned blocks = blocks_for(plan.raster.max_count, kGatherThreads);
  if (blocks)
    launch_early("step_seen_spheres", step_seen_spheres, blocks, kGatherThreads, 0, stream, plan);
  launch_early("finish_step", finish_step, 1, kFinishThreads, 0, stream, plan, options_);
}

void CudaMapping::take_step(bool with_statistics, cudaStream_t stream) {
  const MappingPlan& plan = plans_[with_statistics];
  CudaGraph& graph = graphs_[with_statistics];
  if (graph.ready() && std::memcmp(&plan, &captured_[with_statistics], sizeof(plan)) == 0) {
    graph.launch(stream);
    return;
  }
  launch_step(plan, stream);  // loads the kernels
  graph.capture(stream, [&](cudaStream_t capture) { launch_step(plan, capture); });
  captured_[with_statistics] = plan;
}

void CudaMapping::render(const SphereMatrix& spheres, const View& view, float* image,
                         cudaStream_t stream) {
  raster_.project(spheres, view, stream);
  raster_.forward(image, stream);
}

std::vector<double> CudaMapping::run(AdamSpheres spheres, std::vector<MappingKeyframe>& keyframes,
                                     const std::vector<MappingTask>& tasks,
                                     const MappingStatistics& statistics, cudaStream_t stream) {
  std::vector<double> losses(tasks.size());
  if (tasks.empty()) return losses;
  const DeviceGuard guard(device_);
  const uint32_t steps = static_cast<uint32_t>(tasks.size());
  const uint32_t count = static_cast<uint32_t>(spheres.count);
  prepare(spheres, keyframes.size(), tasks.size(), statistics, stream);
  upload_all(keyframes_.get(), keyframes, stream);
  upload_all(tasks_.get(), tasks, stream);
  upload(state_.get(), MappingState{{}, 0, steps}, stream);
  for (uint32_t done = 0; done < steps;) {
    raster_.begin_pass(count, View{}, 0.0f, stream);  // the view comes from the keyframe
    begin_run<<<1, 1, 0, stream>>>(plans_[0], options_);
    GSSLAM_LAUNCHED(begin_run);
    for (; done < steps; ++done) take_step(done + statistics.steps >= steps, stream);
    // Steps after an overflow did nothing.
    if (!raster_.grow(stream)) break;
    done = download(state_.get(), stream).step;
    prepare(spheres, keyframes.size(), tasks.size(), statistics, stream);
  }
  download_all(losses, losses_.get(), stream);
  download_all(keyframes, keyframes_.get(), stream);
  GSSLAM_CUDA(cudaStreamSynchronize(stream));
  return losses;
}

size_t CudaMapping::bytes() const {
  return raster_.bytes() + loss_.bytes() + 4 * (image_.size() + grad_image_.size() + error_.size());
}

}  // namespace gsslam
