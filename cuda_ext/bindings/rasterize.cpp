#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>

#include "bindings/bindings.h"
#include "rasterize/cpu_rasterizer.h"

namespace nb = nanobind;

namespace gsslam {
namespace {

View make_view(int width, int height, const std::array<double, 4>& intrinsics, double low_pass,
               const std::array<double, 12>& T_camera_world) {
  View v;
  v.width = width;
  v.height = height;
  v.fx = static_cast<float>(intrinsics[0]);
  v.fy = static_cast<float>(intrinsics[1]);
  v.cx = static_cast<float>(intrinsics[2]);
  v.cy = static_cast<float>(intrinsics[3]);
  v.low_pass = static_cast<float>(low_pass);
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column)
      v.R[3 * row + column] = static_cast<float>(T_camera_world[4 * row + column]);
    v.t[row] = static_cast<float>(T_camera_world[4 * row + 3]);
  }
  return v;
}

std::array<double, 12> backward(CpuRasterizer& plan, uintptr_t parameters, int64_t capacity,
                                int64_t count, uintptr_t image, uintptr_t grad_image,
                                uintptr_t error, uintptr_t grad_parameters, uintptr_t statistics,
                                float decay) {
  std::array<double, 12> grad_pose;
  plan.backward(
      sphere_matrix(parameters, capacity, count),
      {pointer<const float>(image), pointer<const float>(grad_image), pointer<const float>(error),
       pointer<float>(grad_parameters), pointer<float>(statistics), decay, grad_pose.data()});
  return grad_pose;
}

}  // namespace

void bind_rasterize(nb::module_& m) {
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<View>(m, "View").def(
      "__init__", [](View* self, int width, int height, const std::array<double, 4>& intrinsics,
                     double low_pass, const std::array<double, 12>& T_camera_world) {
        new (self) View(make_view(width, height, intrinsics, low_pass, T_camera_world));
      });
  nb::class_<CpuRasterizer>(m, "CpuRasterizer")
      .def(nb::init<int>(), nb::arg("num_features"))
      .def(
          "project",
          [](CpuRasterizer& plan, uintptr_t parameters, int64_t capacity, int64_t count,
             const View& view, float list_margin) {
            return plan.project(sphere_matrix(parameters, capacity, count), view, list_margin);
          },
          no_gil)
      .def("refresh", &CpuRasterizer::refresh, no_gil)
      .def(
          "forward",
          [](const CpuRasterizer& plan, uintptr_t image) { plan.forward(pointer<float>(image)); },
          no_gil)
      .def("backward", &backward, no_gil)
      .def("bytes", &CpuRasterizer::bytes);
  nb::dict constants;
  constants["near_plane"] = kNearPlane;
  constants["max_sigma"] = kMaxSigma;
  constants["min_alpha"] = kMinAlpha;
  constants["max_alpha"] = kMaxAlpha;
  constants["min_transmittance"] = kMinTransmittance;
  constants["max_features"] = kMaxFeatures;
  m.attr("constants") = constants;
}

}  // namespace gsslam
