#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <utility>

#include "bindings/bindings.h"
#include "optimizer/cpu_adam.h"

namespace nb = nanobind;

namespace gsslam {
namespace {

std::pair<int64_t, int64_t> step(CpuAdam& plan, uintptr_t parameters, uintptr_t gradient,
                                 uintptr_t first_moment, uintptr_t second_moment, uintptr_t steps,
                                 uintptr_t learning_rates, int rows, int64_t capacity,
                                 int64_t count) {
  const AdamCounts counts =
      plan.step({pointer<float>(parameters), pointer<float>(gradient), pointer<float>(first_moment),
                 pointer<float>(second_moment), pointer<int32_t>(steps),
                 pointer<const float>(learning_rates), rows, capacity, count});
  return {counts.stepped, counts.skipped};
}

}  // namespace

void bind_optimizer(nb::module_& m) {
  nb::class_<CpuAdam>(m, "CpuAdam")
      .def(nb::init<double, double, double>(), nb::arg("beta1"), nb::arg("beta2"),
           nb::arg("epsilon"))
      .def("step", &step, nb::arg("parameters"), nb::arg("gradient"), nb::arg("first_moment"),
           nb::arg("second_moment"), nb::arg("steps"), nb::arg("learning_rates"), nb::arg("rows"),
           nb::arg("capacity"), nb::arg("count"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace gsslam
