// Launches that overlap: a kernel may be launched while the one before it in the stream comes to
// its end, so that the launch costs less time. Needs compute capability 9; elsewhere, and in
// graphs, where it was measured to cost more than it saves, kernels follow one another as usual.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "common/cuda_check.h"

namespace gsslam {

#ifdef __CUDACC__
// Every kernel that is launched by launch_early calls this first, in all of its threads: nothing
// before it may touch what other kernels write.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
#endif

inline bool can_launch_early(cudaStream_t stream) {
  int device = 0, major = 0;
  GSSLAM_CUDA(cudaGetDevice(&device));
  GSSLAM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  cudaStreamCaptureStatus status;
  GSSLAM_CUDA(cudaStreamIsCapturing(stream, &status));
  return major >= 9 && status == cudaStreamCaptureStatusNone;
}

template <typename... Parameters, typename... Arguments>
void launch_early(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  size_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = can_launch_early(stream) ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
             (std::string("launch of ") + name).c_str(), __FILE__, __LINE__);
}

}  // namespace gsslam
