// One function for each op family, called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace gsslam {

// An address as Python passes it: tensor.data_ptr().
template <typename T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

void bind_losses(nanobind::module_& m);
void bind_optimizer(nanobind::module_& m);
void bind_rasterize(nanobind::module_& m);
void bind_tracking(nanobind::module_& m);

}  // namespace gsslam
