// Products of a warpgroup (PTX ISA 8.0, "wgmma"): 64 rows times 16 times N columns, 16-bit factors,
// float32 sums in registers. Sums have the layout of multiply_add (cuda_tensor_core.cuh): thread
// 4 g + t of warp w holds, for each block of eight columns, row 16 w + g, columns 2 t and 2 t + 1,
// then the same of row 16 w + g + 8.
#pragma once

#include "attention/hopper_memory.cuh"

namespace gsslam {

// Where a factor lies in shared memory, its rows of 128 bytes swizzled in blocks of eight rows.
// `group_bytes` from one group of 64 columns to the next matters where columns are not what is
// summed over.
__device__ __forceinline__ uint64_t factor(uint32_t address, uint32_t group_bytes) {
  constexpr uint64_t kEightRows = 8 * kGroupBytes, kSwizzle128 = 1;
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(group_bytes >> 4) << 16 |
         (kEightRows >> 4) << 32 | kSwizzle128 << 62;
}

__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kPending` of the committed groups are at work.
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving what uses sums across a wait.
template <int kCount>
__device__ __forceinline__ void fence_registers(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

#define GSSLAM_SUMS8(HOW, c, i)                                                         \
  HOW(c[i]), HOW(c[i + 1]), HOW(c[i + 2]), HOW(c[i + 3]), HOW(c[i + 4]), HOW(c[i + 5]), \
      HOW(c[i + 6]), HOW(c[i + 7])
#define GSSLAM_SUMS32(HOW, c, i)                                                      \
  GSSLAM_SUMS8(HOW, c, i), GSSLAM_SUMS8(HOW, c, i + 8), GSSLAM_SUMS8(HOW, c, i + 16), \
      GSSLAM_SUMS8(HOW, c, i + 24)

#define GSSLAM_NAMES0                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"

#define GSSLAM_NAMES32                       \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"

#define GSSLAM_NAMES64                       \
  "%64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95"

#define GSSLAM_NAMES96                               \
  "%96, %97, %98, %99, %100, %101, %102, %103, "     \
  "%104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"

#define GSSLAM_PRODUCT_SHARED_64(TYPE, HOW, ADD)                                              \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" GSSLAM_NAMES0 \
               "}, %32, %33, " ADD ", 1, 1, 0, 0;"                                            \
               : GSSLAM_SUMS32(HOW, c, 0)                                                     \
               : "l"(a), "l"(b))

#define GSSLAM_PRODUCT_SHARED_128(TYPE, HOW, ADD)                                              \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" GSSLAM_NAMES0 \
               ", " GSSLAM_NAMES32 "}, %64, %65, " ADD ", 1, 1, 0, 0;"                         \
               : GSSLAM_SUMS32(HOW, c, 0), GSSLAM_SUMS32(HOW, c, 32)                           \
               : "l"(a), "l"(b))

#define GSSLAM_PRODUCT_REGISTERS_64(TYPE)                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" GSSLAM_NAMES0 \
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                    \
               : GSSLAM_SUMS32("+f", c, 0)                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define GSSLAM_PRODUCT_REGISTERS_128(TYPE)                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" GSSLAM_NAMES0 \
               ", " GSSLAM_NAMES32 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                 \
               : GSSLAM_SUMS32("+f", c, 0), GSSLAM_SUMS32("+f", c, 32)                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define GSSLAM_PRODUCT_REGISTERS_192(TYPE)                                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE " {" GSSLAM_NAMES0     \
               ", " GSSLAM_NAMES32 ", " GSSLAM_NAMES64                                             \
               "}, {%96, %97, %98, %99}, %100, 1, 1, 1, 1;"                                        \
               : GSSLAM_SUMS32("+f", c, 0), GSSLAM_SUMS32("+f", c, 32), GSSLAM_SUMS32("+f", c, 64) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define GSSLAM_PRODUCT_REGISTERS_256(TYPE)                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" GSSLAM_NAMES0 \
               ", " GSSLAM_NAMES32 ", " GSSLAM_NAMES64 ", " GSSLAM_NAMES96                     \
               "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"                                \
               : GSSLAM_SUMS32("+f", c, 0), GSSLAM_SUMS32("+f", c, 32),                        \
                 GSSLAM_SUMS32("+f", c, 64), GSSLAM_SUMS32("+f", c, 96)                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// sums (64, N) += a (64, 16) bᵀ (16, N), or = where it does not add; both in shared memory, rows of
// b being columns.
template <typename T, int kN, bool kAdd>
__device__ __forceinline__ void row_product(float (&c)[kN / 2], uint64_t a, uint64_t b) {
  static_assert(kN == 64 || kN == 128);
  constexpr bool kHalf = __is_same(T, __half);
  if constexpr (kN == 64) {
    if constexpr (kHalf && kAdd)
      GSSLAM_PRODUCT_SHARED_64("f16", "+f", "1");
    else if constexpr (kHalf)
      GSSLAM_PRODUCT_SHARED_64("f16", "=f", "0");
    else if constexpr (kAdd)
      GSSLAM_PRODUCT_SHARED_64("bf16", "+f", "1");
    else
      GSSLAM_PRODUCT_SHARED_64("bf16", "=f", "0");
  } else {
    if constexpr (kHalf && kAdd)
      GSSLAM_PRODUCT_SHARED_128("f16", "+f", "1");
    else if constexpr (kHalf)
      GSSLAM_PRODUCT_SHARED_128("f16", "=f", "0");
    else if constexpr (kAdd)
      GSSLAM_PRODUCT_SHARED_128("bf16", "+f", "1");
    else
      GSSLAM_PRODUCT_SHARED_128("bf16", "=f", "0");
  }
}

// sums (64, N) += a (64, 16) b (16, N): a in registers, as multiply_add takes it.
template <typename T, int kN>
__device__ __forceinline__ void add_product(float (&c)[kN / 2], const uint32_t (&a)[4],
                                            uint64_t b) {
  constexpr bool kHalf = __is_same(T, __half);

  if constexpr (kN == 64) {
    if constexpr (kHalf)
      GSSLAM_PRODUCT_REGISTERS_64("f16");
    else
      GSSLAM_PRODUCT_REGISTERS_64("bf16");
  }

  else if constexpr (kN == 128) {
    if constexpr (kHalf)
      GSSLAM_PRODUCT_REGISTERS_128("f16");
    else
      GSSLAM_PRODUCT_REGISTERS_128("bf16");
  }

  else if constexpr (kN == 192) {
    if constexpr (kHalf)
      GSSLAM_PRODUCT_REGISTERS_192("f16");
    else
      GSSLAM_PRODUCT_REGISTERS_192("bf16");
  }

  else if constexpr (kN == 256) {
    if constexpr (kHalf)
      GSSLAM_PRODUCT_REGISTERS_256("f16");
    else
      GSSLAM_PRODUCT_REGISTERS_256("bf16");
  }
}

#undef GSSLAM_PRODUCT_SHARED_64
#undef GSSLAM_PRODUCT_SHARED_128
#undef GSSLAM_PRODUCT_REGISTERS_64
#undef GSSLAM_PRODUCT_REGISTERS_128
#undef GSSLAM_PRODUCT_REGISTERS_192
#undef GSSLAM_PRODUCT_REGISTERS_256

}  // namespace gsslam
