// The Python module: plain numbers and addresses in, exceptions out. gsslam/native.py checks every
// tensor before its address comes here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "common/isa.h"
#include "common/thread_pool.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // objects may outlive the interpreter in saved autograd contexts
  m.def("thread_count", &gsslam::thread_count);
  m.def("set_thread_count", &gsslam::set_thread_count, nb::arg("count"),
        nb::call_guard<nb::gil_scoped_release>());
  m.def("isa", [] { return std::string(gsslam::isa_name()); });
  m.def("set_isa", [](const std::string& name) { return gsslam::set_isa(name.c_str()); });
  gsslam::bind_attention(m);
  gsslam::bind_losses(m);
  gsslam::bind_optimizer(m);
  gsslam::bind_quant(m);
  gsslam::bind_rasterize(m);
  gsslam::bind_tracking(m);
  gsslam::bind_cuda(m);
}
