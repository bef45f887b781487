#include <cuda_runtime.h>

#include "common/cuda_device.h"

namespace gsslam {
namespace {

__global__ void probe() {}

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

std::string cuda_problem(int device) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "no NVIDIA driver is installed";
  if (driver / 1000 < CUDART_VERSION / 1000)
    return "the NVIDIA driver is too old: it supports CUDA " + version(driver) +
           " and the kernels need " + version(CUDART_VERSION) + "; update the driver";
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess && status != cudaErrorNoDevice)
    return std::string("the NVIDIA driver does not work: ") + cudaGetErrorString(status);
  if (count == 0) return "there is no NVIDIA GPU";
  if (device < 0 || device >= count)
    return "there is no GPU " + std::to_string(device) + ", only " + std::to_string(count);
  cudaDeviceProp properties{};
  int before = 0;
  cudaGetDevice(&before);
  cudaFuncAttributes attributes{};
  cudaError_t loaded = cudaGetDeviceProperties(&properties, device);
  if (loaded == cudaSuccess) loaded = cudaSetDevice(device);
  if (loaded == cudaSuccess) loaded = cudaFuncGetAttributes(&attributes, probe);
  cudaSetDevice(before);
  cudaGetLastError();  // a failed call leaves its error behind
  const std::string name = std::string(properties.name) + " (compute capability " +
                           std::to_string(properties.major) + "." +
                           std::to_string(properties.minor) + ")";
  if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorUnsupportedPtxVersion)
    return "this build has no kernels for " + name +
           "; build it with GSSLAM_CUDA_ARCHITECTURES set for that GPU";
  if (loaded != cudaSuccess) return name + " does not work: " + cudaGetErrorString(loaded);
  return "";
}

}  // namespace gsslam
