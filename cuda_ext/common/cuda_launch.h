// Launches that overlap: a kernel's blocks may be placed while the kernel before it in the stream
// still runs, so that the launch costs no time. Needs compute capability 9; elsewhere kernels
// follow one another as usual.
#pragma once

#include <cuda_runtime.h>

#include "common/cuda_check.h"

namespace gsslam {

#ifdef __CUDACC__
// Every kernel that is launched by launch_early calls this first, in all of its threads: nothing
// before it may touch what other kernels write. It also lets the next kernel's blocks be placed.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
#ifdef GSSLAM_TRIGGER
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  cudaGridDependencySynchronize();
#endif
}
#endif

inline bool can_launch_early() {
  int device = 0, major = 0;
  GSSLAM_CUDA(cudaGetDevice(&device));
  GSSLAM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
#ifdef GSSLAM_NO_EARLY
  return false;
#endif
  return major >= 9;
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
  config.numAttrs = can_launch_early() ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
             (std::string("launch of ") + name).c_str(), __FILE__, __LINE__);
}

}  // namespace gsslam
