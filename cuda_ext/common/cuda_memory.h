// Owners of device memory, and the guard that makes a device the current one.
#pragma once

#include <cstddef>
#include <utility>

#include "common/cuda_check.h"

namespace gsslam {

// Makes `device` current and the one before it current again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    GSSLAM_CUDA(cudaGetDevice(&before_));
    if (before_ != device) GSSLAM_CUDA(cudaSetDevice(device));
  }
  ~DeviceGuard() { cudaSetDevice(before_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
};

// Device memory that only grows. Growing loses the contents and waits for the device.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t size) { reserve(size); }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Returns whether the address has changed.
  bool reserve(size_t size) {
    if (size <= size_ && data_) return false;
    GSSLAM_CUDA(cudaFree(std::exchange(data_, nullptr)));
    size_ = 0;
    GSSLAM_CUDA(cudaMalloc(&data_, (size ? size : 1) * sizeof(T)));
    size_ = size;
    return true;
  }
  // The same, zeroed on `stream` where it is new.
  bool reserve_zeroed(size_t size, cudaStream_t stream) {
    const bool changed = reserve(size);
    if (changed) GSSLAM_CUDA(cudaMemsetAsync(data_, 0, (size ? size : 1) * sizeof(T), stream));
    return changed;
  }
  T* get() const { return data_; }
  size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Copies a value to the device without waiting; `value` may change at once.
template <typename T>
void upload(T* to, const T& value, cudaStream_t stream) {
  GSSLAM_CUDA(cudaMemcpyAsync(to, &value, sizeof(T), cudaMemcpyHostToDevice, stream));
}

// Copies a value from the device and waits for it.
template <typename T>
T download(const T* from, cudaStream_t stream) {
  T value;
  GSSLAM_CUDA(cudaMemcpyAsync(&value, from, sizeof(T), cudaMemcpyDeviceToHost, stream));
  GSSLAM_CUDA(cudaStreamSynchronize(stream));
  return value;
}

inline unsigned blocks_for(size_t count, unsigned threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace gsslam
