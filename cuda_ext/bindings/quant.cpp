#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "quant/cpu_linear.h"
#ifdef GSSLAM_CUDA_ENABLED
#include "quant/cuda_linear.h"
#endif

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

#ifdef GSSLAM_CUDA_ENABLED
struct CudaLinearW4A16 {
  explicit CudaLinearW4A16(int device) : device(device) {}
  int device;

  template <bool bfloat16>
  void run(uintptr_t codes, uintptr_t scales, uintptr_t zeros, uintptr_t bias, int64_t outputs,
           int64_t tiles, int64_t groups, uintptr_t x, int64_t rows, int64_t inputs, uintptr_t y,
           uintptr_t stream) const {
    cuda_linear({pointer<const uint8_t>(codes), pointer<const float>(scales),
                 pointer<const uint8_t>(zeros), pointer<const float>(bias), outputs, tiles, groups},
                bfloat16, pointer<const void>(x), rows, inputs, pointer<void>(y), device,
                reinterpret_cast<cudaStream_t>(stream));
  }
};
#endif

}  // namespace

void bind_quant(nb::module_& m) {
  nb::class_<CpuLinearW4A8>(m, "CpuLinearW4A8")
      .def(nb::init<>())
      .def("run", &CpuLinearW4A8::run, nb::call_guard<nb::gil_scoped_release>());
#ifdef GSSLAM_CUDA_ENABLED
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<CudaLinearW4A16>(m, "CudaLinearW4A16")
      .def(nb::init<int>())
      .def("run_float16", &CudaLinearW4A16::run<false>, no_gil)
      .def("run_bfloat16", &CudaLinearW4A16::run<true>, no_gil);
#endif
  m.def(
      "linear_kernel", [](bool vnni) { return std::string(linear_kernel(vnni)); }, nb::arg("vnni"));
}

}  // namespace gsslam
