#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings/bindings.h"
#include "tracking/cpu_tracking.h"

namespace nb = nanobind;

namespace gsslam {
namespace {

std::vector<double> normal_equations(CpuTracking& tracking, const CpuRasterizer& plan,
                                     uintptr_t rgb, uintptr_t depth, float gain, float bias,
                                     const TrackingWeights& weights, int stride, int skew) {
  std::vector<double> sums(kTrackSums);
  tracking.normal_equations(plan,
                            {pointer<const float>(rgb), pointer<const float>(depth), gain, bias},
                            weights, {stride, skew}, sums.data());
  return sums;
}

std::vector<double> residuals(CpuTracking& tracking, const CpuRasterizer& plan, uintptr_t rgb,
                              uintptr_t depth, float gain, float bias,
                              const TrackingWeights& weights, int stride, int skew) {
  std::vector<double> sums(kTrackSums);
  tracking.residuals(plan, {pointer<const float>(rgb), pointer<const float>(depth), gain, bias},
                     weights, {stride, skew}, sums.data());
  return sums;
}

}  // namespace

void bind_tracking(nb::module_& m) {
  nb::class_<TrackingWeights>(m, "TrackingWeights")
      .def("__init__", [](TrackingWeights* self, float huber_colour, float depth_weight,
                          float sigma_base, float sigma_quadratic, float silhouette_threshold) {
        new (self) TrackingWeights{huber_colour, depth_weight, sigma_base, sigma_quadratic,
                                   silhouette_threshold};
      });
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<CpuTracking>(m, "CpuTracking")
      .def(nb::init<>())
      .def("normal_equations", &normal_equations, no_gil)
      .def("residuals", &residuals, no_gil)
      .def("bytes", &CpuTracking::bytes);
}

}  // namespace gsslam
