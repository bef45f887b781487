// Eight 4-bit codes in a word to eight 16-bit numbers code - zero, all of them exact.
//
// Nibble i + 4 h of a word is number h of pair i. A pair is cut out with the bits of a power of two
// put in front (one lop3), so that it reads power + code, and one fused multiply-add takes power
// and zero away. Kim et al., "Who says elephants can't run" (2022), section 3.2, have the idea.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace gsslam {

// Pairs 0 and 2 belong to one output of the weights, 1 and 3 to the other.
template <typename T>
struct Nibbles;

// Half precision has ten bits behind the point: 1024 + code, and without a shift for the nibble
// above, 1024 + 16 code.
template <>
struct Nibbles<__half> {
  uint32_t minus_even, minus_odd;  // -(1024 + zero) and -(64 + zero), twice each

  __device__ Nibbles(uint32_t even_zero, uint32_t odd_zero)
      : minus_even(0xE400E400u | even_zero * 0x10001u),
        minus_odd(0xD400D400u | odd_zero * 0x100010u) {}

  static __device__ uint32_t fused(uint32_t x, uint32_t factor, uint32_t addend) {
    const __half2 y =
        __hfma2(reinterpret_cast<const __half2&>(x), reinterpret_cast<const __half2&>(factor),
                reinterpret_cast<const __half2&>(addend));
    return reinterpret_cast<const uint32_t&>(y);
  }

  __device__ void convert(uint32_t word, uint32_t (&pairs)[4]) const {
    constexpr uint32_t kPower = 0x64006400u, kOne = 0x3C003C00u, kSixteenth = 0x2C002C00u;
    const uint32_t upper = word >> 8;
    pairs[0] = fused((word & 0x000F000Fu) | kPower, kOne, minus_even);
    pairs[1] = fused((word & 0x00F000F0u) | kPower, kSixteenth, minus_odd);
    pairs[2] = fused((upper & 0x000F000Fu) | kPower, kOne, minus_even);
    pairs[3] = fused((upper & 0x00F000F0u) | kPower, kSixteenth, minus_odd);
  }
};

// bfloat16 has seven bits: 128 + code, for the lowest nibble alone.
template <>
struct Nibbles<__nv_bfloat16> {
  uint32_t minus_even, minus_odd;  // -(128 + zero), twice each

  __device__ Nibbles(uint32_t even_zero, uint32_t odd_zero)
      : minus_even(0xC300C300u | even_zero * 0x10001u),
        minus_odd(0xC300C300u | odd_zero * 0x10001u) {}

  static __device__ uint32_t pair(uint32_t word, uint32_t addend) {
    constexpr uint32_t kOne = 0x3F803F80u;
    const uint32_t x = (word & 0x000F000Fu) | 0x43004300u;
    const __nv_bfloat162 y = __hfma2(reinterpret_cast<const __nv_bfloat162&>(x),
                                     reinterpret_cast<const __nv_bfloat162&>(kOne),
                                     reinterpret_cast<const __nv_bfloat162&>(addend));
    return reinterpret_cast<const uint32_t&>(y);
  }

  __device__ void convert(uint32_t word, uint32_t (&pairs)[4]) const {
    pairs[0] = pair(word, minus_even);
    pairs[1] = pair(word >> 4, minus_odd);
    pairs[2] = pair(word >> 8, minus_even);
    pairs[3] = pair(word >> 12, minus_odd);
  }
};

}  // namespace gsslam
