// One function for each op family, called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>

#include "rasterize/sphere_matrix.h"

namespace gsslam {

// An address as Python passes it: tensor.data_ptr().
template <typename T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

inline SphereMatrix sphere_matrix(uintptr_t parameters, int64_t capacity, int64_t count) {
  return {pointer<const float>(parameters), capacity, count};
}

void bind_attention(nanobind::module_& m);
void bind_losses(nanobind::module_& m);
void bind_optimizer(nanobind::module_& m);
void bind_quant(nanobind::module_& m);
void bind_rasterize(nanobind::module_& m);
void bind_tracking(nanobind::module_& m);
void bind_cuda(nanobind::module_& m);        // also in builds without CUDA, where it only says so
void bind_cuda_steps(nanobind::module_& m);  // in builds with CUDA

}  // namespace gsslam
