// How much memory vectors hold.
#pragma once

#include <cstddef>
#include <vector>

namespace gsslam {

template <typename... T>
size_t vector_bytes(const std::vector<T>&... vectors) {
  return (size_t{0} + ... + (vectors.capacity() * sizeof(T)));
}

}  // namespace gsslam
