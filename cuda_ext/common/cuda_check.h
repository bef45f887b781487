// Every CUDA call goes through here: a failure becomes an exception that names it.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace gsslam {

// Python sees it as gsslam.NativeError.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check_cuda(cudaError_t status, const char* what, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw CudaError(std::string(what) + " failed: " + cudaGetErrorString(status) + " (" +
                  cudaGetErrorName(status) + ", " + file + ":" + std::to_string(line) + ")");
}

// A CUDA runtime call.
#define GSSLAM_CUDA(call) ::gsslam::check_cuda((call), #call, __FILE__, __LINE__)
// After a launch: whether it was accepted.
#define GSSLAM_LAUNCHED(kernel) \
  ::gsslam::check_cuda(cudaGetLastError(), "launch of " #kernel, __FILE__, __LINE__)

}  // namespace gsslam
