// Explicit vectors of floats, as wide as the instruction set that this file is compiled for.
//
// A file that includes this is compiled once for each instruction set, into the namespace
// gsslam::GSSLAM_ISA. It must not instantiate templates of the standard library: the linker would
// keep one copy of them for all, and it might be one that the processor cannot run.
#pragma once

#include <cstdint>
#include <cstring>

namespace gsslam::GSSLAM_ISA {

#if defined(__AVX512F__) && defined(GSSLAM_WIDE)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float vfloat __attribute__((vector_size(4 * kLanes)));
typedef int32_t vint __attribute__((vector_size(4 * kLanes)));

// Subtracting zero leaves every float as it is, so that only the broadcast remains.
static inline vfloat splat(float x) { return x - vfloat{}; }
static inline vint splat(int32_t x) { return vint{} + x; }

static inline vfloat load(const float* p) {
  vfloat v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
static inline void store(float* p, vfloat v) { std::memcpy(p, &v, sizeof(v)); }

// The same for the first n lanes, n > 0; the other lanes of a loaded vector are 0.
static inline vfloat load_first(const float* p, int64_t n) {
  if (n >= kLanes) return load(p);
  vfloat v{};
  std::memcpy(&v, p, sizeof(float) * n);
  return v;
}
static inline void store_first(float* p, vfloat v, int64_t n) {
  if (n >= kLanes) return store(p, v);
  std::memcpy(p, &v, sizeof(float) * n);
}

static inline vfloat min(vfloat a, vfloat b) { return a < b ? a : b; }
static inline vfloat max(vfloat a, vfloat b) { return a > b ? a : b; }
static inline vfloat abs(vfloat a) { return (vfloat)((vint)a & splat(0x7fffffff)); }

static inline vfloat sqrt(vfloat v) {
  float x[kLanes];
  store(x, v);
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return load(x);
}

// Lanes 0, 1, 2, ...
static inline vfloat lane_index() {
  vfloat v;
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(i);
  return v;
}

// Sum of the lanes, always by the same tree.
static inline float sum(vfloat v) {
  float x[kLanes];
  store(x, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  return x[0];
}

// Sums of eight vectors at once, by a tree that adds neighbours: a third of the work of eight sums.
static inline void sum_eight(const vfloat* v, float* sums) {
#if defined(__AVX__)
  typedef float eight __attribute__((vector_size(32)));
  eight halves[8], pairs[4], quads[2];
  for (int i = 0; i < 8; ++i) {
#if defined(__AVX512F__) && defined(GSSLAM_WIDE)
    halves[i] = __builtin_shufflevector(v[i], v[i], 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(v[i], v[i], 8, 9, 10, 11, 12, 13, 14, 15);
#else
    halves[i] = v[i];
#endif
  }
  for (int i = 0; i < 4; ++i) {
    const eight a = halves[2 * i], b = halves[2 * i + 1];
    pairs[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
               __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 2; ++i) {
    const eight a = pairs[2 * i], b = pairs[2 * i + 1];
    quads[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  const eight result = __builtin_shufflevector(quads[0], quads[1], 0, 1, 2, 3, 8, 9, 10, 11) +
                       __builtin_shufflevector(quads[0], quads[1], 4, 5, 6, 7, 12, 13, 14, 15);
  std::memcpy(sums, &result, sizeof(result));
#else
  for (int i = 0; i < 8; ++i) sums[i] = sum(v[i]);
#endif
}

static inline float largest(vfloat v) {
  float x[kLanes];
  store(x, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
  return x[0];
}

// One bit for each lane of a comparison's result.
static inline uint32_t bits_of(vint mask) {
#if defined(__AVX512DQ__) && defined(GSSLAM_WIDE)
  return static_cast<uint32_t>(__builtin_ia32_cvtd2mask512(mask));
#elif defined(__AVX__)
  return static_cast<uint32_t>(__builtin_ia32_movmskps256((vfloat)mask));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(mask[i] & 1) << i;
  return bits;
#endif
}

// True if any lane of a comparison's result holds.
static inline bool any(vint mask) { return bits_of(mask) != 0; }

namespace {

// A running sum of vectors in double precision.
class DoubleSum {
 public:
  void add(vfloat v) {
    half_vfloat halves[2];
    std::memcpy(halves, &v, sizeof(v));
    for (int h = 0; h < 2; ++h) sums_[h] += __builtin_convertvector(halves[h], half_vdouble);
  }

  // Sum of the lanes, always by the same tree.
  double total() const {
    double x[kLanes];
    std::memcpy(x, sums_, sizeof(x));
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
  }

 private:
  typedef float half_vfloat __attribute__((vector_size(2 * kLanes)));
  typedef double half_vdouble __attribute__((vector_size(4 * kLanes)));
  half_vdouble sums_[2] = {};
};

}  // namespace

// 2^(f + n) for |f| <= 0.5, relative error below 1.2e-7 (minimax polynomial); n as the low bits of
// `shifted`, which 1.5 * 2^23 was added to.
static inline vfloat exp2_of_parts(vfloat f, vfloat shifted) {
  vfloat p = splat(1.5403530e-4f);
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  return (vfloat)((vint)p + ((vint)shifted << 23));
}

inline constexpr float kShifter = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

// 2^x for x <= 0, relative error below 1.2e-7; 2^-126 for all x under -126.
static inline vfloat exp2_nonpositive(vfloat x) {
  x = max(x, splat(-126.0f));
  const vfloat shifted = x + kShifter;
  return exp2_of_parts(x - (shifted - kShifter), shifted);
}

// e^x, relative error below 3e-7; x beyond +-87 counts as +-87, NaN stays.
static inline vfloat exp(vfloat x) {
  const vfloat y = min(max(x, splat(-87.0f)), splat(87.0f));
  const vfloat shifted = y * 1.44269504f + kShifter;
  const vfloat n = shifted - kShifter;
  // n ln(2) goes off in two parts, so that what is left keeps its digits.
  const vfloat f = ((y - n * 0.693359375f) + n * 2.12194440e-4f) * 1.44269504f;
  const vfloat result = exp2_of_parts(f, shifted);
  return x == x ? result : x;
}

// Natural logarithm of a positive, finite, normal x; absolute error below 2e-7 for x in [0.5, 300].
static inline vfloat log(vfloat x) {
  const vint bits = (vint)x;
  // x = m 2^e with m from sqrt(1/2) to sqrt(2).
  const vint e = (bits - splat(0x3f3504f3)) >> 23;
  const vfloat m = (vfloat)(bits - (e << 23));
  // ln(m) = 2 artanh(u), u = (m - 1) / (m + 1), |u| < 0.172.
  const vfloat u = (m - 1.0f) / (m + 1.0f), u2 = u * u;
  vfloat p = splat(2.0f / 9.0f);
  p = p * u2 + 2.0f / 7.0f;
  p = p * u2 + 2.0f / 5.0f;
  p = p * u2 + 2.0f / 3.0f;
  p = p * u2 + 2.0f;
  return p * u + __builtin_convertvector(e, vfloat) * 0.69314718f;
}

}  // namespace gsslam::GSSLAM_ISA
