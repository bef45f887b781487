#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "quant/cpu_linear.h"

namespace nb = nanobind;

namespace gsslam {

namespace {

struct CpuLinearW4A8 {
  void run(uintptr_t steps, uintptr_t scales, uintptr_t zeros, uintptr_t bias, int64_t outputs,
           int64_t inputs, uintptr_t x, uintptr_t factors, int64_t rows, bool vnni,
           uintptr_t y) const {
    linear(
        {pointer<const uint8_t>(steps), pointer<const float>(scales), pointer<const uint8_t>(zeros),
         pointer<const float>(bias), outputs, inputs, (inputs + kGroup - 1) / kGroup},
        pointer<const float>(x), pointer<const float>(factors), rows, vnni, pointer<float>(y));
  }
};

}  // namespace

void bind_quant(nb::module_& m) {
  nb::class_<CpuLinearW4A8>(m, "CpuLinearW4A8")
      .def(nb::init<>())
      .def("run", &CpuLinearW4A8::run, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "linear_kernel", [](bool vnni) { return std::string(linear_kernel(vnni)); }, nb::arg("vnni"));
}

}  // namespace gsslam
