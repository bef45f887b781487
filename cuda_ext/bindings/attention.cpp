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

using Shape = std::array<int64_t, 7>;

struct CpuAttention {
  void forward(const Shape& shape, float scale, uintptr_t query, uintptr_t key, uintptr_t value,
               int64_t left, int64_t right, int64_t offset, uintptr_t key_lengths, uintptr_t output,
               uintptr_t log_sum_exp) const {
    attention_forward({shape_of(shape),
                       {left, right, offset, pointer<const int32_t>(key_lengths)},
                       scale,
                       pointer<const float>(query),
                       {pointer<const float>(key), pointer<const float>(value), nullptr, 0}},
                      pointer<float>(output), pointer<float>(log_sum_exp));
  }

  void forward_paged(int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries, int64_t dim,
                     int64_t value_dim, float scale, uintptr_t query, uintptr_t key,
                     uintptr_t value, uintptr_t key_lengths, uintptr_t table, int64_t table_pages,
                     uintptr_t output, uintptr_t log_sum_exp) const {
    const int64_t keys = table_pages * kTokenTile;
    attention_forward({{batch, heads, kv_heads, queries, keys, dim, value_dim},
                       {-1, -1, 0, pointer<const int32_t>(key_lengths)},
                       scale,
                       pointer<const float>(query),
                       {pointer<const float>(key), pointer<const float>(value),
                        pointer<const int32_t>(table), table_pages}},
                      pointer<float>(output), pointer<float>(log_sum_exp));
  }

  void backward(const Shape& shape, float scale, uintptr_t query, uintptr_t key, uintptr_t value,
                int64_t left, int64_t right, int64_t offset, uintptr_t key_lengths,
                uintptr_t output, uintptr_t log_sum_exp, uintptr_t grad_output,
                uintptr_t grad_log_sum_exp, uintptr_t delta, uintptr_t grad_query,
                uintptr_t grad_key, uintptr_t grad_value) const {
    attention_backward({shape_of(shape),
                        {left, right, offset, pointer<const int32_t>(key_lengths)},
                        scale,
                        pointer<const float>(query),
                        {pointer<const float>(key), pointer<const float>(value), nullptr, 0}},
                       {pointer<const float>(output), pointer<const float>(log_sum_exp),
                        pointer<const float>(grad_output), pointer<const float>(grad_log_sum_exp),
                        pointer<float>(delta), pointer<float>(grad_query), pointer<float>(grad_key),
                        pointer<float>(grad_value)});
  }
};

#ifdef GSSLAM_CUDA_ENABLED
struct CudaAttention {
  explicit CudaAttention(int device) : device(device) {}
  int device;

  size_t forward_parts(int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries,
                       int64_t keys, int64_t dim, int64_t value_dim, uintptr_t) const {
    return cuda_attention_forward_parts({batch, heads, kv_heads, queries, keys, dim, value_dim},
                                        device);
  }
  size_t backward_parts(int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries,
                        int64_t keys, int64_t dim, int64_t value_dim, uintptr_t) const {
    return cuda_attention_backward_parts({batch, heads, kv_heads, queries, keys, dim, value_dim},
                                         device);
  }

  template <bool bfloat16>
  void forward(const Shape& shape, float scale, uintptr_t query, uintptr_t key, uintptr_t value,
               int64_t left, int64_t right, int64_t offset, uintptr_t key_lengths, uintptr_t output,
               uintptr_t log_sum_exp, uintptr_t parts, uintptr_t stream) const {
    cuda_attention_forward({shape_of(shape),
                            {left, right, offset, pointer<const int32_t>(key_lengths)},
                            scale,
                            bfloat16,
                            pointer<const void>(query),
                            pointer<const void>(key),
                            pointer<const void>(value)},
                           pointer<void>(output), pointer<float>(log_sum_exp),
                           pointer<float>(parts), device, reinterpret_cast<cudaStream_t>(stream));
  }

  template <bool bfloat16>
  void backward(const Shape& shape, float scale, uintptr_t query, uintptr_t key, uintptr_t value,
                int64_t left, int64_t right, int64_t offset, uintptr_t key_lengths,
                uintptr_t output, uintptr_t log_sum_exp, uintptr_t grad_output,
                uintptr_t grad_log_sum_exp, uintptr_t delta, uintptr_t grad_query,
                uintptr_t grad_key, uintptr_t grad_value, uintptr_t parts, uintptr_t stream) const {
    cuda_attention_backward(
        {shape_of(shape),
         {left, right, offset, pointer<const int32_t>(key_lengths)},
         scale,
         bfloat16,
         pointer<const void>(query),
         pointer<const void>(key),
         pointer<const void>(value)},
        {pointer<const void>(output), pointer<const float>(log_sum_exp),
         pointer<const void>(grad_output), pointer<const float>(grad_log_sum_exp),
         pointer<float>(delta), pointer<float>(parts), pointer<void>(grad_query),
         pointer<void>(grad_key), pointer<void>(grad_value)},
        device, reinterpret_cast<cudaStream_t>(stream));
  }
};

void bind_cuda_attention(nb::module_& m) {
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<CudaAttention>(m, "CudaAttention")
      .def(nb::init<int>())
      .def("forward_parts", &CudaAttention::forward_parts)
      .def("backward_parts", &CudaAttention::backward_parts)
      .def("forward_float16", &CudaAttention::forward<false>, no_gil)
      .def("forward_bfloat16", &CudaAttention::forward<true>, no_gil)
      .def("backward_float16", &CudaAttention::backward<false>, no_gil)
      .def("backward_bfloat16", &CudaAttention::backward<true>, no_gil);
}
#endif

}  // namespace

void bind_attention(nb::module_& m) {
  m.attr("PAGE_TOKENS") = kTokenTile;
#ifdef GSSLAM_CUDA_ENABLED
  bind_cuda_attention(m);
#endif
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<CpuAttention>(m, "CpuAttention")
      .def(nb::init<>())
      .def("forward", &CpuAttention::forward, no_gil)
      .def("forward_paged", &CpuAttention::forward_paged, no_gil)
      .def("backward", &CpuAttention::backward, no_gil);
}

}  // namespace gsslam
