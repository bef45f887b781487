#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "losses/cpu_image_loss.h"

namespace nb = nanobind;

namespace gsslam {
namespace {

LossValue evaluate(CpuImageLoss& plan, uintptr_t rendered, uintptr_t colour, uintptr_t depth,
                   int64_t width, int64_t height, double gain, double bias,
                   const LossWeights& weights, uintptr_t gradient, uintptr_t error) {
  return plan.evaluate({pointer<const float>(rendered), pointer<const float>(colour),
                        pointer<const float>(depth), width, height},
                       gain, bias, weights, {pointer<float>(gradient), pointer<float>(error)});
}

}  // namespace

void bind_losses(nb::module_& m) {
  nb::class_<LossWeights>(m, "LossWeights")
      .def(
          "__init__",
          [](LossWeights* self, double ssim, double depth, double silhouette, double threshold) {
            new (self) LossWeights{ssim, depth, silhouette, static_cast<float>(threshold)};
          },
          nb::arg("ssim"), nb::arg("depth"), nb::arg("silhouette"),
          nb::arg("silhouette_threshold"));
  nb::class_<LossValue>(m, "LossValue")
      .def_ro("total", &LossValue::total)
      .def_ro("l1", &LossValue::l1)
      .def_ro("dssim", &LossValue::dssim)
      .def_ro("depth", &LossValue::depth)
      .def_ro("silhouette", &LossValue::silhouette)
      .def_ro("grad_gain", &LossValue::grad_gain)
      .def_ro("grad_bias", &LossValue::grad_bias);
  nb::class_<CpuImageLoss>(m, "CpuImageLoss")
      .def(nb::init<>())
      .def("evaluate", &evaluate, nb::arg("rendered"), nb::arg("colour"), nb::arg("depth"),
           nb::arg("width"), nb::arg("height"), nb::arg("gain"), nb::arg("bias"),
           nb::arg("weights"), nb::arg("gradient"), nb::arg("error"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("bytes", &CpuImageLoss::bytes);
}

}  // namespace gsslam
