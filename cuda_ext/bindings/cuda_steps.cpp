// The fused steps, which only CUDA has: a frame's tracking and a keyframe's mapping, each one call.
#ifdef GSSLAM_CUDA_ENABLED
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "mapping/cuda_mapping.h"
#include "tracking/cuda_tracker.h"

namespace nb = nanobind;

namespace gsslam {
namespace {

using Pose = std::array<double, 12>;  // upper 3 x 4 of T_camera_world
using Intrinsics = std::array<double, 4>;

Pinhole pinhole(int width, int height, const Intrinsics& k, double low_pass) {
  return {width,
          height,
          static_cast<float>(k[0]),
          static_cast<float>(k[1]),
          static_cast<float>(k[2]),
          static_cast<float>(k[3]),
          static_cast<float>(low_pass)};
}

// Pose, gain, bias, moments of the eight unknowns, steps, addresses of colour bytes and depth.
using KeyframeTuple = std::tuple<Pose, double, double, std::array<double, 8>, std::array<double, 8>,
                                 int64_t, uintptr_t, uintptr_t>;

MappingKeyframe from_tuple(const KeyframeTuple& t) {
  MappingKeyframe k{};
  std::copy_n(std::get<0>(t).begin(), 12, k.T_camera_world);
  k.gain = std::get<1>(t);
  k.bias = std::get<2>(t);
  std::copy_n(std::get<3>(t).begin(), kKeyframeUnknowns, k.moment1);
  std::copy_n(std::get<4>(t).begin(), kKeyframeUnknowns, k.moment2);
  k.steps = std::get<5>(t);
  k.rgb = pointer<const uint8_t>(std::get<6>(t));
  k.depth = pointer<const float>(std::get<7>(t));
  return k;
}

KeyframeTuple to_tuple(const MappingKeyframe& k) {
  KeyframeTuple t;
  std::copy_n(k.T_camera_world, 12, std::get<0>(t).begin());
  std::get<1>(t) = k.gain;
  std::get<2>(t) = k.bias;
  std::copy_n(k.moment1, kKeyframeUnknowns, std::get<3>(t).begin());
  std::copy_n(k.moment2, kKeyframeUnknowns, std::get<4>(t).begin());
  std::get<5>(t) = k.steps;
  std::get<6>(t) = reinterpret_cast<uintptr_t>(k.rgb);
  std::get<7>(t) = reinterpret_cast<uintptr_t>(k.depth);
  return t;
}

std::pair<std::vector<KeyframeTuple>, std::vector<double>> run_mapping(
    CudaMapping& mapping, uintptr_t parameters, uintptr_t first_moment, uintptr_t second_moment,
    uintptr_t steps, int64_t capacity, int64_t count, const std::vector<KeyframeTuple>& keyframes,
    const std::vector<std::pair<uint32_t, bool>>& tasks, uintptr_t statistics, float decay,
    uint32_t statistics_steps, uintptr_t stream) {
  AdamSpheres spheres{};
  spheres.parameters = pointer<float>(parameters);
  spheres.first_moment = pointer<float>(first_moment);
  spheres.second_moment = pointer<float>(second_moment);
  spheres.steps = pointer<int32_t>(steps);
  spheres.rows = kFeature;
  spheres.capacity = capacity;
  spheres.count = count;
  std::vector<MappingKeyframe> frames;
  for (const KeyframeTuple& keyframe : keyframes) frames.push_back(from_tuple(keyframe));
  std::vector<MappingTask> work;
  for (const auto& [keyframe, refine] : tasks) work.push_back({keyframe, refine});
  std::vector<double> losses =
      mapping.run(spheres, frames, work, {pointer<float>(statistics), decay, statistics_steps},
                  reinterpret_cast<cudaStream_t>(stream));
  std::vector<KeyframeTuple> stepped;
  for (const MappingKeyframe& frame : frames) stepped.push_back(to_tuple(frame));
  return {std::move(stepped), std::move(losses)};
}

// Width, height, intrinsics, addresses of colour and depth, most iterations.
using LevelTuple = std::tuple<int, int, Intrinsics, uintptr_t, uintptr_t, int>;

struct TrackerResult {
  Pose T_camera_world;
  double gain, bias;
  std::vector<double> sums;
  int iterations, rebuilds;
  bool converged;
};

TrackerResult estimate(CudaTracker& tracker, double low_pass, uintptr_t parameters,
                       int64_t capacity, int64_t count, const std::vector<LevelTuple>& levels,
                       const std::vector<Pose>& guesses, double gain, double bias,
                       uintptr_t stream) {
  std::vector<TrackingLevel> images;
  for (const auto& [width, height, intrinsics, rgb, depth, iterations] : levels)
    images.push_back({pinhole(width, height, intrinsics, low_pass), pointer<const float>(rgb),
                      pointer<const float>(depth), iterations});
  std::vector<CameraState> states;
  for (const Pose& guess : guesses) {
    CameraState state{{}, gain, bias};
    std::copy_n(guess.begin(), 12, state.T_camera_world);
    states.push_back(state);
  }
  const TrackerState s = tracker.estimate(sphere_matrix(parameters, capacity, count), images,
                                          states, reinterpret_cast<cudaStream_t>(stream));
  TrackerResult result{{},
                       s.now.gain,
                       s.now.bias,
                       {s.best_sums, s.best_sums + kTrackSums},
                       static_cast<int>(s.iteration),
                       static_cast<int>(s.rebuilds),
                       s.converged != 0};
  std::copy_n(s.now.T_camera_world, 12, result.T_camera_world.begin());
  return result;
}

}  // namespace

void bind_cuda_steps(nb::module_& m) {
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<CudaMapping>(m, "CudaMapping")
      .def("__init__",
           [](CudaMapping* self, int width, int height, const Intrinsics& intrinsics,
              double low_pass, const LossWeights& weights, std::array<double, 3> adam,
              std::array<double, 2> keyframe_rates, const std::vector<float>& sphere_rates,
              int device) {
             const MappingOptions options{pinhole(width, height, intrinsics, low_pass),
                                          weights,
                                          adam[0],
                                          adam[1],
                                          adam[2],
                                          keyframe_rates[0],
                                          keyframe_rates[1]};
             new (self) CudaMapping(options, sphere_rates, device);
           })
      .def(
          "render",
          [](CudaMapping& mapping, uintptr_t parameters, int64_t capacity, int64_t count,
             const View& view, uintptr_t image, uintptr_t stream) {
            mapping.render(sphere_matrix(parameters, capacity, count), view, pointer<float>(image),
                           reinterpret_cast<cudaStream_t>(stream));
          },
          no_gil)
      .def("run", &run_mapping, no_gil)
      .def("bytes", &CudaMapping::bytes);
  nb::class_<TrackerResult>(m, "TrackerResult")
      .def_ro("T_camera_world", &TrackerResult::T_camera_world)
      .def_ro("gain", &TrackerResult::gain)
      .def_ro("bias", &TrackerResult::bias)
      .def_ro("sums", &TrackerResult::sums)
      .def_ro("iterations", &TrackerResult::iterations)
      .def_ro("rebuilds", &TrackerResult::rebuilds)
      .def_ro("converged", &TrackerResult::converged);
  nb::class_<CudaTracker>(m, "CudaTracker")
      .def("__init__",
           [](CudaTracker* self, const TrackingWeights& weights, double exposure_prior,
              double convergence_step, std::array<double, 3> damping, double margin, int device) {
             TrackerOptions options{};
             options.weights = weights;
             options.exposure_prior = exposure_prior;
             options.convergence_step = convergence_step;
             options.first_damping = damping[0];
             options.least_damping = damping[1];
             options.damping_factor = damping[2];
             options.margin = static_cast<float>(margin);
             new (self) CudaTracker(options, device);
           })
      .def("estimate", &estimate, no_gil)
      .def("bytes", &CudaTracker::bytes);
}

}  // namespace gsslam
#endif
