#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include "attention/cpu_attention.h"
#include "attention/cpu_attention_tile.h"
#include "bindings/bindings.h"
#ifdef GSSLAM_CUDA_ENABLED
#include "attention/cuda_attention.h"
#endif

namespace nb = nanobind;

namespace gsslam {
namespace {

// batch, heads, kv_heads, queries, keys, dim, value_dim
AttentionShape shape_of(const std::array<int64_t, 7>& s) {
  return {s[0], s[1], s[2], s[3], s[4], s[5], s[6]};
}

// left, right, offset, address of the key lengths
AttentionMask mask_of(const std::array<int64_t, 4>& m) {
  return {m[0], m[1], m[2], pointer<const int32_t>(static_cast<uintptr_t>(m[3]))};
}

void forward(const std::array<int64_t, 7>& shape, const std::array<int64_t, 4>& mask, float scale,
             uintptr_t query, uintptr_t key, uintptr_t value, uintptr_t table, int64_t table_pages,
             uintptr_t output, uintptr_t log_sum_exp) {
  attention_forward({shape_of(shape),
                     mask_of(mask),
                     scale,
                     pointer<const float>(query),
                     {pointer<const float>(key), pointer<const float>(value),
                      pointer<const int32_t>(table), table_pages}},
                    pointer<float>(output), pointer<float>(log_sum_exp));
}

void backward(const std::array<int64_t, 7>& shape, const std::array<int64_t, 4>& mask, float scale,
              uintptr_t query, uintptr_t key, uintptr_t value, uintptr_t output,
              uintptr_t log_sum_exp, uintptr_t grad_output, uintptr_t grad_log_sum_exp,
              uintptr_t delta, uintptr_t grad_query, uintptr_t grad_key, uintptr_t grad_value) {
  attention_backward({shape_of(shape),
                      mask_of(mask),
                      scale,
                      pointer<const float>(query),
                      {pointer<const float>(key), pointer<const float>(value), nullptr, 0}},
                     {pointer<const float>(output), pointer<const float>(log_sum_exp),
                      pointer<const float>(grad_output), pointer<const float>(grad_log_sum_exp),
                      pointer<float>(delta), pointer<float>(grad_query), pointer<float>(grad_key),
                      pointer<float>(grad_value)});
}

#ifdef GSSLAM_CUDA_ENABLED
CudaAttentionInput cuda_input(const std::array<int64_t, 7>& shape,
                              const std::array<int64_t, 4>& mask, float scale, bool bfloat16,
                              uintptr_t query, uintptr_t key, uintptr_t value) {
  return {shape_of(shape),
          mask_of(mask),
          scale,
          bfloat16,
          pointer<const void>(query),
          pointer<const void>(key),
          pointer<const void>(value)};
}

void cuda_forward(const std::array<int64_t, 7>& shape, const std::array<int64_t, 4>& mask,
                  float scale, bool bfloat16, uintptr_t query, uintptr_t key, uintptr_t value,
                  uintptr_t output, uintptr_t log_sum_exp, uintptr_t parts, int device,
                  uintptr_t stream) {
  cuda_attention_forward(cuda_input(shape, mask, scale, bfloat16, query, key, value),
                         pointer<void>(output), pointer<float>(log_sum_exp), pointer<float>(parts),
                         device, reinterpret_cast<cudaStream_t>(stream));
}

void cuda_backward(const std::array<int64_t, 7>& shape, const std::array<int64_t, 4>& mask,
                   float scale, bool bfloat16, uintptr_t query, uintptr_t key, uintptr_t value,
                   uintptr_t output, uintptr_t log_sum_exp, uintptr_t grad_output,
                   uintptr_t grad_log_sum_exp, uintptr_t delta, uintptr_t grad_query,
                   uintptr_t grad_key, uintptr_t grad_value, uintptr_t parts, int device,
                   uintptr_t stream) {
  cuda_attention_backward(cuda_input(shape, mask, scale, bfloat16, query, key, value),
                          {pointer<const void>(output), pointer<const float>(log_sum_exp),
                           pointer<const void>(grad_output), pointer<const float>(grad_log_sum_exp),
                           pointer<float>(delta), pointer<float>(parts), pointer<void>(grad_query),
                           pointer<void>(grad_key), pointer<void>(grad_value)},
                          device, reinterpret_cast<cudaStream_t>(stream));
}

void bind_cuda_attention(nb::module_& m) {
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  m.def("cuda_attention_forward_parts", [](const std::array<int64_t, 7>& shape, int device) {
    return cuda_attention_forward_parts(shape_of(shape), device);
  });
  m.def("cuda_attention_backward_parts", [](const std::array<int64_t, 7>& shape, int device) {
    return cuda_attention_backward_parts(shape_of(shape), device);
  });
  m.def("cuda_attention_forward", &cuda_forward, no_gil);
  m.def("cuda_attention_backward", &cuda_backward, no_gil);
}
#endif

}  // namespace

void bind_attention(nb::module_& m) {
  m.attr("PAGE_TOKENS") = kTokenTile;
#ifdef GSSLAM_CUDA_ENABLED
  bind_cuda_attention(m);
#endif
  m.def("cpu_attention_forward", &forward, nb::arg("shape"), nb::arg("mask"), nb::arg("scale"),
        nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("table"),
        nb::arg("table_pages"), nb::arg("output"), nb::arg("log_sum_exp"),
        nb::call_guard<nb::gil_scoped_release>());
  m.def("cpu_attention_backward", &backward, nb::arg("shape"), nb::arg("mask"), nb::arg("scale"),
        nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("output"),
        nb::arg("log_sum_exp"), nb::arg("grad_output"), nb::arg("grad_log_sum_exp"),
        nb::arg("delta"), nb::arg("grad_query"), nb::arg("grad_key"), nb::arg("grad_value"),
        nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace gsslam
