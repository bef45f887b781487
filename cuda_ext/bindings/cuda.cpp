// The CUDA twins of the CPU's plans: the same arguments, and the stream behind them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

#ifdef GSSLAM_CUDA_ENABLED
#include "common/cuda_device.h"
#include "losses/cuda_image_loss.h"
#include "optimizer/cuda_adam.h"
#include "rasterize/cuda_rasterizer.h"
#include "tracking/cuda_tracking.h"
#endif

namespace nb = nanobind;

namespace gsslam {

#ifdef GSSLAM_CUDA_ENABLED
namespace {

cudaStream_t as_stream(uintptr_t stream) { return reinterpret_cast<cudaStream_t>(stream); }

std::array<double, 12> backward(CudaRasterizer& plan, uintptr_t parameters, int64_t capacity,
                                int64_t count, uintptr_t image, uintptr_t grad_image,
                                uintptr_t error, uintptr_t grad_parameters, uintptr_t statistics,
                                float decay, uintptr_t stream) {
  std::array<double, 12> grad_pose;
  plan.backward(
      sphere_matrix(parameters, capacity, count),
      {pointer<const float>(image), pointer<const float>(grad_image), pointer<const float>(error),
       pointer<float>(grad_parameters), pointer<float>(statistics), decay, grad_pose.data()},
      as_stream(stream));
  return grad_pose;
}

std::vector<double> normal_equations(CudaTracking& tracking, CudaRasterizer& plan, uintptr_t rgb,
                                     uintptr_t depth, float gain, float bias,
                                     const TrackingWeights& weights, uintptr_t stream) {
  std::vector<double> sums(kTrackSums);
  tracking.normal_equations(plan,
                            {pointer<const float>(rgb), pointer<const float>(depth), gain, bias},
                            weights, sums.data(), as_stream(stream));
  return sums;
}

LossValue evaluate(CudaImageLoss& plan, uintptr_t rendered, uintptr_t colour, uintptr_t depth,
                   int64_t width, int64_t height, double gain, double bias,
                   const LossWeights& weights, uintptr_t gradient, uintptr_t error,
                   uintptr_t stream) {
  return plan.evaluate({pointer<const float>(rendered), pointer<const float>(colour),
                        pointer<const float>(depth), width, height},
                       gain, bias, weights, {pointer<float>(gradient), pointer<float>(error)},
                       as_stream(stream));
}

std::pair<int64_t, int64_t> step(CudaAdam& plan, uintptr_t parameters, uintptr_t gradient,
                                 uintptr_t first_moment, uintptr_t second_moment, uintptr_t steps,
                                 uintptr_t learning_rates, int rows, int64_t capacity,
                                 int64_t count, uintptr_t stream) {
  const AdamCounts counts =
      plan.step({pointer<float>(parameters), pointer<float>(gradient), pointer<float>(first_moment),
                 pointer<float>(second_moment), pointer<int32_t>(steps),
                 pointer<const float>(learning_rates), rows, capacity, count},
                as_stream(stream));
  return {counts.stepped, counts.skipped};
}

void bind_plans(nb::module_& m) {
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<CudaRasterizer>(m, "CudaRasterizer")
      .def(nb::init<int, int>(), nb::arg("num_features"), nb::arg("device"))
      .def(
          "project",
          [](CudaRasterizer& plan, uintptr_t parameters, int64_t capacity, int64_t count,
             const View& view, uintptr_t stream) {
            return plan.project(sphere_matrix(parameters, capacity, count), view,
                                as_stream(stream));
          },
          no_gil)
      .def(
          "queue_project",
          [](CudaRasterizer& plan, uintptr_t parameters, int64_t capacity, int64_t count,
             const View& view, uintptr_t stream) {
            plan.queue_project(sphere_matrix(parameters, capacity, count), view, as_stream(stream));
          },
          no_gil)
      .def(
          "forward",
          [](CudaRasterizer& plan, uintptr_t image, uintptr_t stream) {
            plan.forward(pointer<float>(image), as_stream(stream));
          },
          no_gil)
      .def("backward", &backward, no_gil)
      .def("bytes", &CudaRasterizer::bytes);
  nb::class_<CudaTracking>(m, "CudaTracking")
      .def(nb::init<int>(), nb::arg("device"))
      .def("normal_equations", &normal_equations, no_gil)
      .def("bytes", &CudaTracking::bytes);
  nb::class_<CudaImageLoss>(m, "CudaImageLoss")
      .def(nb::init<int>(), nb::arg("device"))
      .def("evaluate", &evaluate, no_gil)
      .def("bytes", &CudaImageLoss::bytes);
  nb::class_<CudaAdam>(m, "CudaAdam")
      .def(nb::init<double, double, double, int>(), nb::arg("beta1"), nb::arg("beta2"),
           nb::arg("epsilon"), nb::arg("device"))
      .def("step", &step, no_gil);
}

}  // namespace
#endif

void bind_cuda(nb::module_& m) {
#ifdef GSSLAM_CUDA_ENABLED
  m.def("cuda_problem", &cuda_problem, nb::arg("device") = 0);
  // A known error: the command line turns it into one line.
  nb::exception<CudaError>(m, "CudaError",
                           nb::module_::import_("gsslam.errors").attr("NativeError"));
  bind_plans(m);
  bind_cuda_steps(m);
#else
  m.def(
      "cuda_problem",
      [](int) { return std::string("this installation of gsslam was built without CUDA kernels"); },
      nb::arg("device") = 0);
#endif
}

}  // namespace gsslam
