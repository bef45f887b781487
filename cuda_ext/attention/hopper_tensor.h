// Tensors as Hopper's copy engine knows them.
#pragma once

#include <cuda.h>

#include "common/cuda_check.h"

namespace gsslam {

// (matrices, rows, columns) of 16 bits, read in boxes of `box_rows` rows and 64 columns.
inline CUtensorMap tensor_map(const void* data, bool bfloat16, int64_t matrices, int64_t rows,
                              int64_t columns, int box_rows) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    GSSLAM_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                 cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
      throw CudaError("the GPU's driver is too old for tensor maps; update it to 525 or newer");
    return reinterpret_cast<Encode>(function);
  }();
  CUtensorMap map{};
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(matrices)};
  const cuuint64_t strides[2] = {2 * sizes[0], 2 * sizes[0] * sizes[1]};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1}, steps[3] = {1, 1, 1};
  const CUresult result =
      encode(&map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
             const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw CudaError("cuTensorMapEncodeTiled failed with error " + std::to_string(result));
  return map;
}

}  // namespace gsslam
