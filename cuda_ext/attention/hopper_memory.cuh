// Hopper's asynchronous copies: tiles of a tensor into swizzled shared memory, and the barriers
// that say when they are there and when their place is free (PTX ISA 8.0, "mbarrier" and
// "cp.async.bulk.tensor").
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/cuda_tensor_core.cuh"

namespace gsslam {

inline constexpr int kGroupColumns = 64;  // of 16 bits: the 128 bytes that a swizzle spans
inline constexpr int kGroupBytes = 2 * kGroupColumns;

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes new barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies 64 columns of some rows of a tensor (matrices, rows, columns); zeros where there are none.
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap& tensor, int column,
                                          int row, int matrix, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&tensor), "r"(column), "r"(row), "r"(matrix), "r"(barrier)
      : "memory");
}

// A ring of places for tiles, which one thread fills and the warps of some warpgroups read in the
// same order.
struct TileRing {
  uint32_t places, full, empty;  // addresses
  int count, bytes;
  int place = 0;
  uint32_t parity = 0;

  __device__ uint32_t address() const { return places + place * bytes; }
  __device__ uint32_t full_barrier() const { return full + 8 * place; }
  __device__ void wait_full() const { barrier_wait(full + 8 * place, parity); }
  __device__ void wait_empty() const { barrier_wait(empty + 8 * place, parity ^ 1); }
  __device__ void release() const { barrier_arrive(empty + 8 * place); }
  __device__ void next() {
    if (++place < count) return;
    place = 0;
    parity ^= 1;
  }
};

}  // namespace gsslam
