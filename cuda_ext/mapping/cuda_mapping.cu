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

// Points the next pass at a keyframe.
__device__ void look_at(const MappingPlan& p, const MappingOptions& options,
                        const MappingKeyframe& keyframe) {
  p.raster.state->view = view_of(options.camera, keyframe.T_camera_world);
  p.state->target = {nullptr, keyframe.rgb, keyframe.depth, static_cast<float>(keyframe.gain),
                     static_cast<float>(keyframe.bias)};
}

__device__ void begin_step(const MappingPlan& p) {
  p.raster.state->visible = 0;
  p.raster.state->stale = 1;
}

__global__ void begin_run(const MappingPlan p, const MappingOptions options) {
  begin_step(p);
  if (p.state->step >= p.state->steps) return;
  look_at(p, options, p.keyframes[p.tasks[p.state->step].keyframe]);
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

// Entry i of dL / d twist of exp(xi) T_camera_world at zero, from dL / d T (3 x 4).
__device__ double twist_gradient(const double* G, const double* T, int i) {
  if (i < 3) return G[4 * i + 3];
  const int row = (i - 2) % 3, column = (i - 1) % 3;  // the two axes after the rotation's
  double there = 0, back = 0;                         // rows of T x rows of G
  for (int k = 0; k < 4; ++k) {
    there += T[4 * row + k] * G[4 * column + k];
    back += T[4 * column + k] * G[4 * row + k];
  }
  return there - back;
}

// What a step and the next are about, in shared memory.
struct StepTasks {
  MappingTask now, next;
  bool has_next;
  MappingKeyframe keyframe, next_keyframe;
  double corrections[2];  // of the moments, at the keyframe's next step
  double step[kKeyframeUnknowns];

  // By one warp, while the others add up: each of these loads waits for the one before.
  __device__ __forceinline__ void fetch(const MappingPlan& p, const MappingOptions& o) {
    const uint32_t lane = threadIdx.x & 31, done = p.state->step, steps = p.state->steps;
    const MappingTask task = p.tasks[done], then = p.tasks[min(done + 1, steps - 1)];
    copy(keyframe, p.keyframes[task.keyframe]);
    copy(next_keyframe, p.keyframes[then.keyframe]);
    __syncwarp();
    if (task.refine && lane < 2)
      corrections[lane] =
          1 - pow(lane == 0 ? o.beta1 : o.beta2, static_cast<double>(keyframe.steps + 1));
    if (lane > 0) return;
    now = task;
    next = then;
    has_next = done + 1 < steps;
  }

  // Adam's step on the keyframe by one warp, a lane for each unknown.
  __device__ __forceinline__ void step_keyframe(const MappingPlan& p, const MappingOptions& o,
                                                const double* grad_pose, const LossValue& value) {
    const int i = threadIdx.x & 31;
    MappingKeyframe& k = keyframe;
    if (i < kKeyframeUnknowns) {
      const double g = i < 6    ? twist_gradient(grad_pose, k.T_camera_world, i)
                       : i == 6 ? value.grad_gain
                                : value.grad_bias;
      k.moment1[i] += (1 - o.beta1) * (g - k.moment1[i]);
      k.moment2[i] += (1 - o.beta2) * (g * g - k.moment2[i]);
      const double rate = i < 6 ? o.pose_rate : o.exposure_rate;
      step[i] = -rate * (k.moment1[i] / corrections[0]) /
                (sqrt(k.moment2[i] / corrections[1]) + o.epsilon);
    }
    __syncwarp();
    if (i == 0) {
      double T[12], xi[6];  // in registers
      for (int j = 0; j < 12; ++j) T[j] = k.T_camera_world[j];
      for (int j = 0; j < 6; ++j) xi[j] = step[j];
      move_pose(xi, T);
      for (int j = 0; j < 12; ++j) k.T_camera_world[j] = T[j];
      k.gain += step[6];
      k.bias += step[7];
      ++k.steps;
    }
    __syncwarp();
    copy(p.keyframes[now.keyframe], k);
  }

 private:
  // By one warp.
  static __device__ __forceinline__ void copy(MappingKeyframe& to, const MappingKeyframe& from) {
    constexpr int kWords = sizeof(MappingKeyframe) / 8;
#pragma unroll
    for (int i = 0; i < kWords; i += 32)
      if (const int word = i + (threadIdx.x & 31); word < kWords)
        reinterpret_cast<uint64_t*>(&to)[word] = reinterpret_cast<const uint64_t*>(&from)[word];
  }
};

// Sums of the gradient of the pose, in shared memory.
__device__ __forceinline__ void sum_pose(const MappingPlan& p, double (&pose)[kPoseSums]) {
  constexpr int kGroups = kFinishThreads / kPoseSums;
  __shared__ double groups[kGroups][kPoseSums];
  const int blocks = (p.raster.state->count + kGatherThreads - 1) / kGatherThreads;
  if (threadIdx.x < kGroups * kPoseSums) {
    const int k = threadIdx.x % kPoseSums, group = threadIdx.x / kPoseSums;
    double sum = 0;
#pragma unroll 4
    for (int i = group; i < blocks; i += kGroups) sum += p.pose_partials[i * kPoseSums + k];
    groups[group][k] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kPoseSums) {
    double sum = 0;
    for (int group = 0; group < kGroups; ++group) sum += groups[group][threadIdx.x];
    pose[threadIdx.x] = sum;
  }
  __syncthreads();
}

// Adds up loss and pose gradient, steps the keyframe, and begins the next step.
__global__ void __launch_bounds__(kFinishThreads)
    finish_step(const MappingPlan p, const MappingOptions options) {
  __shared__ StepTasks tasks;
  __shared__ double pose[kPoseSums];
  wait_for_kernel_before();
  if (p.raster.state->overflow) return;
  if (threadIdx.x >= kFinishThreads - 32) tasks.fetch(p, options);
  const LossValue value = total_loss(p.loss);
  const bool refine = tasks.now.refine;
  if (refine) sum_pose(p, pose);
  if (threadIdx.x >= 32) return;
  if (refine) tasks.step_keyframe(p, options, pose, value);
  if (threadIdx.x != 0) return;
  const uint32_t step = p.state->step;
  p.losses[step] = value.total;
  p.state->step = step + 1;
  begin_step(p);
  if (!tasks.has_next) return;
  const bool same = tasks.next.keyframe == tasks.now.keyframe;
  look_at(p, options, same ? tasks.keyframe : tasks.next_keyframe);
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
