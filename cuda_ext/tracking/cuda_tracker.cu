#include <algorithm>
#include <cstring>

#include "common/cuda_launch.h"
#include "common/reduce.cuh"
#include "tracking/cuda_tracker.h"

namespace gsslam {
namespace {

void make_lists(const RasterPlan& raster, cudaStream_t stream) {
  launch_project(raster, stream);
  launch_scan(raster, stream);
  launch_fill(raster, stream);
  launch_sort(raster, stream);
}

// Points the raster at the state under evaluation.
__device__ void look_from(RasterState& raster, const TrackerState& state, const Pinhole& camera) {
  raster.view = view_of(camera, state.now.T_camera_world);
}

__device__ void show(TrackerState& state, const TrackingLevel& level) {
  state.seen = {level.rgb, level.depth, static_cast<float>(state.now.gain),
                static_cast<float>(state.now.bias)};
}

__global__ void begin_guess(RasterState* raster, TrackerState* state, const CameraState* guess,
                            const TrackingLevel* level, Pinhole camera) {
  state->now = *guess;
  state->stop = 0;
  raster->halt = 0;
  raster->stale = 1;
  look_from(*raster, *state, camera);
  show(*state, *level);
}

__global__ void judge_guess(TrackerState* state, const double* sums, bool first) {
  const double pixels = sums[kTrackPixels];
  const double cost = pixels > 0 ? sums[kTrackCost] / pixels : INFINITY;
  if (!first && !(cost < state->chosen_cost)) return;
  state->chosen_cost = cost;
  state->chosen = state->now;
}

__global__ void begin_level(RasterState* raster, TrackerState* state, const TrackingLevel* level,
                            Pinhole camera, double damping, bool first) {
  if (first) state->now = state->chosen;
  state->best = state->now;
  state->best_cost = INFINITY;
  state->damping = damping;
  state->iteration = state->converged = state->failed = 0;
  state->has_best = state->now_is_best = 0;
  state->stop = 0;
  raster->halt = 0;
  raster->stale = 1;
  look_from(*raster, *state, camera);
  show(*state, *level);
}

// Solves A x = b for a symmetric positive definite matrix by Cholesky's method, in registers.
__device__ bool solve(double (&A)[kUnknowns][kUnknowns], double (&b)[kUnknowns]) {
  bool sound = true;
#pragma unroll
  for (int j = 0; j < kUnknowns; ++j) {
    double d = A[j][j];
#pragma unroll
    for (int k = 0; k < j; ++k) d -= A[j][k] * A[j][k];
    sound &= d > 0 && d < INFINITY;
    const double inverse = rsqrt(d);
    A[j][j] = inverse;
#pragma unroll
    for (int i = j + 1; i < kUnknowns; ++i) {
      double s = A[i][j];
#pragma unroll
      for (int k = 0; k < j; ++k) s -= A[i][k] * A[j][k];
      A[i][j] = s * inverse;
    }
  }
#pragma unroll
  for (int i = 0; i < kUnknowns; ++i) {
#pragma unroll
    for (int k = 0; k < i; ++k) b[i] -= A[i][k] * b[k];
    b[i] *= A[i][i];
  }
#pragma unroll
  for (int i = kUnknowns - 1; i >= 0; --i) {
#pragma unroll
    for (int k = i + 1; k < kUnknowns; ++k) b[i] -= A[k][i] * b[k];
    b[i] *= A[i][i];
  }
  return sound;
}

// The damped Gauss-Newton step of the best state; false where there is nothing to solve.
__device__ bool gauss_newton_step(const TrackerState& state, const TrackerOptions& options,
                                  double (&step)[kUnknowns]) {
  const double* sums = state.best_sums;
  if (!(sums[kTrackPixels] > 0)) return false;
  double A[kUnknowns][kUnknowns];
  int at = kTrackHessian;
#pragma unroll
  for (int i = 0; i < kUnknowns; ++i)
#pragma unroll
    for (int j = i; j < kUnknowns; ++j) A[j][i] = A[i][j] = sums[at++];
#pragma unroll
  for (int i = 0; i < kUnknowns; ++i) step[i] = -sums[kTrackGradient + i];
  // The exposure is held near (1, 0) as if some pixels had said so.
  const double unit = options.weights.huber_colour;
  const double prior = options.exposure_prior * sums[kTrackPixels] / (unit * unit);
  A[6][6] += prior;
  A[7][7] += prior;
  step[6] -= prior * (state.best.gain - 1);
  step[7] -= prior * state.best.bias;
#pragma unroll
  for (int i = 0; i < kUnknowns; ++i) A[i][i] += state.damping * fmax(A[i][i], 1e-12);
  return solve(A, step);
}

// One iteration: judges the state that was evaluated and moves on to the next. `s` is a copy of the
// state in shared memory.
__device__ void step_pose(RasterState* raster, TrackerState& s, const double* sums,
                          const TrackingLevel* level, const Pinhole& camera,
                          const TrackerOptions& options) {
  s.rebuilds += raster->stale;
  raster->stale = 0;
  ++s.iteration;
  const double pixels = sums[kTrackPixels];
  const double cost = pixels > 0 ? sums[kTrackCost] / pixels : INFINITY;
  s.now_is_best = !s.has_best || cost <= s.best_cost;
  if (s.now_is_best) {
    s.best = s.now;
    s.best_cost = cost;
    s.has_best = 1;
    for (int k = 0; k < kTrackSums; ++k) s.best_sums[k] = sums[k];
    s.damping = fmax(s.damping / options.damping_factor, options.least_damping);
  } else {
    s.damping *= options.damping_factor * options.damping_factor;
  }
  double step[kUnknowns];
  if (!gauss_newton_step(s, options, step)) {
    s.failed = 1;
  } else {
    s.now = s.best;
    move_pose(step, s.now.T_camera_world);
    s.now.gain += step[6];
    s.now.bias += step[7];
    double largest = 0;
    for (int k = 0; k < 6; ++k) largest = fmax(largest, fabs(step[k]));
    s.converged = largest < options.convergence_step;
  }
  s.stop = s.failed || s.converged || s.iteration >= static_cast<uint32_t>(level->iterations);
  if (s.stop) {
    raster->halt = 1;
    // The last step is not evaluated; it is taken unless the one before it had failed.
    if (s.failed || !(s.converged || s.now_is_best)) s.now = s.best;
    return;
  }
  look_from(*raster, s, camera);
  show(s, *level);
}

constexpr int kStepThreads = 256;

// Iterations in one round of a graph's loop: a conditional node takes the device as long as several
// kernels, and what is left of the last round costs three idle ones for each.
#ifndef GSSLAM_TRACKING_ROUND
#define GSSLAM_TRACKING_ROUND 6
#endif
constexpr int kRound = GSSLAM_TRACKING_ROUND;

// One block adds each of the sums up; the last to be done takes the step.
__global__ void __launch_bounds__(kStepThreads)
    sum_and_step(RasterState* raster, TrackerState* state, const TrackingPlan equations, int blocks,
                 const TrackingLevel* level, Pinhole camera, TrackerOptions options,
                 Condition go_on) {
  constexpr int kWords = sizeof(TrackerState) / 4;
  __shared__ double shared[kStepThreads / 32];
  __shared__ double totals[kTrackSums];
  __shared__ TrackerState copy;
  __shared__ bool is_last;
  wait_for_kernel_before();
  if (equations.is_idle()) return;  // the condition stays what it is
  const float* partials = equations.partials + static_cast<int64_t>(blockIdx.x) * blocks;
  double sum = 0;
#pragma unroll 10
  for (int i = threadIdx.x; i < blocks; i += kStepThreads) sum += partials[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) {
    equations.sums[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicAdd(&state->ticket, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  // All at once to shared memory, as one thread would wait for every number on its own.
  const volatile double* sums = equations.sums;
  if (threadIdx.x < kTrackSums) totals[threadIdx.x] = sums[threadIdx.x];
  uint32_t* const words = reinterpret_cast<uint32_t*>(&copy);
  for (int i = threadIdx.x; i < kWords; i += kStepThreads)
    words[i] = reinterpret_cast<const volatile uint32_t*>(state)[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    copy.ticket = 0;
    if (!raster->overflow && !copy.stop)
      step_pose(raster, copy, totals, level, camera, options);
    else
      copy.stop = 1;
    go_on.set(!copy.stop);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kWords; i += kStepThreads)
    reinterpret_cast<uint32_t*>(state)[i] = words[i];
}

}  // namespace

CudaTracker::CudaTracker(const TrackerOptions& options, int device)
    : options_(options), device_(device), raster_(0, device) {
  const DeviceGuard guard(device);
  state_.reserve(1);
  sums_.reserve(kTrackSums);
}

void CudaTracker::prepare(const SphereMatrix& spheres, const std::vector<TrackingLevel>& levels,
                          cudaStream_t stream) {
  levels_.clear();
  images_.reserve(levels.size());
  int most_tiles = 0;
  for (int pass = 0; pass < 2; ++pass) {  // the first makes room, the second takes addresses
    for (const TrackingLevel& level : levels) {
      raster_.prepare(spheres, level.camera.width, level.camera.height, kForTracking | kForGraph,
                      stream);
      most_tiles = std::max(most_tiles, raster_.plan().tiles());
      partials_.reserve(size_t{kBlocksOfTile} * most_tiles * kTrackSums);
      if (pass == 0) continue;
      Level l{};
      l.raster = raster_.plan();
      l.equations = {&state_.get()->seen, options_.weights,    partials_.get(),
                     sums_.get(),         &state_.get()->stop, nullptr};
      l.camera = level.camera;
      l.iterations = level.iterations;
      levels_.push_back(l);
    }
  }
}

void CudaTracker::launch_step(size_t i, const TrackingPlan& equations, const Condition& go_on,
                              cudaStream_t stream) const {
  const Level& level = levels_[i];
  launch_normal_equations(level.raster, equations, stream);
  launch_early("sum_and_step", sum_and_step, kTrackSums, kStepThreads, 0, stream,
               level.raster.state, state_.get(), equations, kBlocksOfTile * level.raster.tiles(),
               images_.get() + i, level.camera, options_, go_on);
}

void CudaTracker::launch_iterations(size_t i, cudaStream_t stream) const {
  const Level& level = levels_[i];
  for (int iteration = 0; iteration < level.iterations; ++iteration) {
    launch_refresh(level.raster, {}, stream);
    make_lists(level.raster, stream);
    launch_step(i, level.equations, {}, stream);
  }
}

void CudaTracker::capture_iterations(size_t i, cudaStream_t stream) const {
  const Level& level = levels_[i];
  const cudaGraphConditionalHandle loop = make_condition(stream, 1);
  capture_conditional(stream, loop, cudaGraphCondTypeWhile, [&](cudaStream_t body) {
    const cudaGraphConditionalHandle lists = make_condition(body, 0);
    launch_refresh(level.raster, {lists, true}, body);
    capture_conditional(body, lists, cudaGraphCondTypeIf,
                        [&](cudaStream_t inner) { make_lists(level.raster, inner); });
    launch_step(i, level.equations, {loop, true}, body);
    // Without lists of their own: where these are stale, what is left of the round does nothing.
    TrackingPlan equations = level.equations;
    equations.hold = &level.raster.state->stale;
    for (int k = 1; k < std::min(kRound, level.iterations); ++k) {
      launch_refresh(level.raster, {}, body);
      launch_step(i, equations, {loop, true}, body);
    }
  });
}

void CudaTracker::launch_frame(size_t guesses, bool captured, cudaStream_t stream) const {
  const Level& coarsest = levels_[0];
  RasterState* const raster = coarsest.raster.state;
  TrackerState* const state = state_.get();
  for (size_t guess = 0; guess < guesses; ++guess) {
    begin_guess<<<1, 1, 0, stream>>>(raster, state, guesses_.get() + guess, images_.get(),
                                     coarsest.camera);
    if (guesses > 1) {
      make_lists(coarsest.raster, stream);
      launch_normal_equations(coarsest.raster, coarsest.equations, stream);
      launch_sum_equations(coarsest.raster, coarsest.equations, stream);
    }
    judge_guess<<<1, 1, 0, stream>>>(state, sums_.get(), guess == 0);
  }
  for (size_t i = 0; i < levels_.size(); ++i) {
    begin_level<<<1, 1, 0, stream>>>(raster, state, images_.get() + i, levels_[i].camera,
                                     options_.first_damping, i == 0);
    GSSLAM_LAUNCHED(begin_level);
    if (captured)
      capture_iterations(i, stream);
    else
      launch_iterations(i, stream);
  }
}

TrackerState CudaTracker::estimate(const SphereMatrix& spheres,
                                   const std::vector<TrackingLevel>& levels,
                                   const std::vector<CameraState>& guesses, cudaStream_t stream) {
  const DeviceGuard guard(device_);
  guesses_.reserve(std::max<size_t>(guesses.size(), 4));
  prepare(spheres, levels, stream);
  while (true) {
    raster_.begin_pass(spheres.count, View{}, options_.margin, stream);  // views come from levels
    GSSLAM_CUDA(cudaMemcpyAsync(guesses_.get(), guesses.data(),
                                guesses.size() * sizeof(CameraState), cudaMemcpyHostToDevice,
                                stream));
    GSSLAM_CUDA(cudaMemcpyAsync(images_.get(), levels.data(), levels.size() * sizeof(TrackingLevel),
                                cudaMemcpyHostToDevice, stream));
    GSSLAM_CUDA(cudaMemsetAsync(state_.get(), 0, sizeof(TrackerState), stream));
    const bool same =
        graph_.ready() && captured_guesses_ == guesses.size() &&
        captured_levels_.size() == levels_.size() &&
        std::memcmp(captured_levels_.data(), levels_.data(), levels_.size() * sizeof(Level)) == 0;
    if (same) {
      graph_.launch(stream);
    } else {
      launch_frame(guesses.size(), false, stream);  // loads the kernels
      graph_.capture(stream,
                     [&](cudaStream_t capture) { launch_frame(guesses.size(), true, capture); });
      captured_levels_ = levels_;
      captured_guesses_ = guesses.size();
    }
    if (!raster_.grow(stream)) break;
    prepare(spheres, levels, stream);
  }
  return download(state_.get(), stream);
}

}  // namespace gsslam
