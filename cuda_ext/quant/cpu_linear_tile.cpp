// A tile of outputs: lanes are outputs, so that integer sums leave the registers only as results.
#define GSSLAM_WIDE
#include "quant/cpu_linear_tile.h"

#include "common/vec.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace gsslam::GSSLAM_ISA {
namespace {

constexpr int kBlockSteps = kBlock / 8;
constexpr int kBlockVectors = 2 * kBlockSteps;  // of four inputs for each lane
constexpr int64_t kBlocksPerGroup = kGroup / kBlock;
// Rows that share unpacked weights, as many as the registers hold sums for.
constexpr int kRows = kLanes == 16 ? 8 : 4;

#ifdef __AVX2__
vint four_inputs(const int8_t* values) {
  int32_t four;
  std::memcpy(&four, values, sizeof(four));
  return splat(four);
}
#endif

// For each lane, the sum over a block's 32 inputs of weight (0 to 15, a byte each) times value.
vint dot(const vint (&weights)[kBlockVectors], const int8_t* values) {
#if defined(__AVX512VNNI__)
  __m512i sums[2] = {};
  for (int s = 0; s < kBlockVectors; ++s)
    sums[s % 2] =
        _mm512_dpbusd_epi32(sums[s % 2], (__m512i)weights[s], (__m512i)four_inputs(values + 4 * s));
  return (vint)sums[0] + (vint)sums[1];
#elif defined(__AVXVNNI__)
  __m256i sums[2] = {};
  for (int s = 0; s < kBlockVectors; ++s)
    sums[s % 2] = _mm256_dpbusd_avx_epi32(sums[s % 2], (__m256i)weights[s],
                                          (__m256i)four_inputs(values + 4 * s));
  return (vint)sums[0] + (vint)sums[1];
#elif defined(__AVX512BW__)
  // A pair's sum is at most 2 * 15 * 127, and eight of them at most 30480: no 16-bit sum saturates.
  __m512i pairs = _mm512_setzero_si512();
  for (int s = 0; s < kBlockVectors; ++s)
    pairs = _mm512_add_epi16(
        pairs, _mm512_maddubs_epi16((__m512i)weights[s], (__m512i)four_inputs(values + 4 * s)));
  return (vint)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
  __m256i pairs = _mm256_setzero_si256();
  for (int s = 0; s < kBlockVectors; ++s)
    pairs = _mm256_add_epi16(
        pairs, _mm256_maddubs_epi16((__m256i)weights[s], (__m256i)four_inputs(values + 4 * s)));
  return (vint)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__SSE2__)
  // Even and odd bytes apart, as pairs of 16-bit integers.
  __m128i sums = _mm_setzero_si128();
  for (int s = 0; s < kBlockVectors; ++s) {
    const int8_t* v = values + 4 * s;
    const __m128i even = _mm_and_si128((__m128i)weights[s], _mm_set1_epi32(0x00ff00ff));
    const __m128i odd = _mm_srli_epi16((__m128i)weights[s], 8);
    const int32_t even_values = (v[0] & 0xffff) | (v[2] * 0x10000);
    const int32_t odd_values = (v[1] & 0xffff) | (v[3] * 0x10000);
    sums = _mm_add_epi32(sums, _mm_madd_epi16(even, _mm_set1_epi32(even_values)));
    sums = _mm_add_epi32(sums, _mm_madd_epi16(odd, _mm_set1_epi32(odd_values)));
  }
  return (vint)sums;
#else
  vint sums{};
  for (int s = 0; s < kBlockVectors; ++s)
    for (int i = 0; i < 4; ++i)
      sums += ((weights[s] >> (8 * i)) & splat(0xff)) * splat(int32_t{values[4 * s + i]});
  return sums;
#endif
}

// Splits a block's nibbles into bytes: four inputs of each lane in a vector.
void unpack(const uint8_t* steps, vint (&weights)[kBlockVectors]) {
  for (int s = 0; s < kBlockSteps; ++s) {
    vint packed;
    std::memcpy(&packed, steps + s * kStepBytes, sizeof(packed));
    weights[2 * s] = packed & splat(0x0f0f0f0f);
    weights[2 * s + 1] = (packed >> 4) & splat(0x0f0f0f0f);
  }
}

vfloat to_float(vint v) { return __builtin_convertvector(v, vfloat); }

// Outputs of kLanes lanes from `lane` on, for kCount rows from `first` on.
template <int kCount>
void rows_block(const PackedWeights& w, const QuantizedRows& rows, int64_t tile, int64_t lane,
                int64_t first, float* outputs) {
  const int64_t blocks = w.groups * kBlocksPerGroup;
  const uint8_t* steps = w.steps + tile * w.groups * (kGroup / 8) * kStepBytes + 4 * lane;
  const int8_t* values = rows.values + first * w.groups * kGroup;
  const float* scales = rows.scales + first * blocks;
  const float* sums = rows.sums + first * w.groups;
  vfloat results[kCount] = {};
  for (int64_t g = 0; g < w.groups; ++g) {
    vfloat partial[kCount] = {};
    for (int64_t b = g * kBlocksPerGroup; b < (g + 1) * kBlocksPerGroup; ++b) {
      vint weights[kBlockVectors];
      unpack(steps + b * kBlockSteps * kStepBytes, weights);
      for (int r = 0; r < kCount; ++r) {
        const vint d = dot(weights, values + r * w.groups * kGroup + b * kBlock);
        partial[r] += to_float(d) * splat(scales[r * blocks + b]);
      }
    }
    const int64_t at = (tile * w.groups + g) * kOutputTile + lane;
    vfloat zero;
    for (int l = 0; l < kLanes; ++l) zero[l] = w.zeros[at + l];
    const vfloat scale = load(w.scales + at);
    for (int r = 0; r < kCount; ++r)
      results[r] += scale * (partial[r] - zero * splat(sums[r * w.groups + g]));
  }
  const int64_t output = tile * kOutputTile + lane, count = w.outputs - output;
  if (count <= 0) return;
  const vfloat bias = w.bias ? load_first(w.bias + output, count) : vfloat{};
  for (int r = 0; r < kCount; ++r)
    store_first(outputs + (first + r) * w.outputs + output, results[r] + bias, count);
}

template <int kCount>
void last_rows(const PackedWeights& w, const QuantizedRows& rows, int64_t tile, int64_t lane,
               int64_t first, float* outputs) {
  if constexpr (kCount > 0) {
    if (rows.rows - first == kCount) return rows_block<kCount>(w, rows, tile, lane, first, outputs);
    last_rows<kCount - 1>(w, rows, tile, lane, first, outputs);
  }
}

// Values of a block, kLanes at a time.
constexpr int kBlockLoads = kBlock / kLanes;

void quantize_block(const float* row, const float* factors, int64_t inputs, int8_t* values,
                    float* scale, float* sum_of_block) {
  vfloat x[kBlockLoads], largest_value{};
  for (int i = 0; i < kBlockLoads; ++i) {
    const int64_t at = i * kLanes;
    x[i] = at < inputs ? load_first(row + at, inputs - at) : vfloat{};
    if (factors && at < inputs) x[i] *= load_first(factors + at, inputs - at);
    largest_value = max(abs(x[i]), largest_value);
  }
  const float most = largest(largest_value);
  const float inverse = most > 0 ? 127.0f / most : 0;
  const vfloat shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  vint total{};
  for (int i = 0; i < kBlockLoads; ++i) {
    const vfloat product = x[i] * inverse;
    const vint q = (vint)(product + shifter) - (vint)shifter;
    typedef int8_t bytes __attribute__((vector_size(kLanes)));
    const bytes narrow = __builtin_convertvector(q, bytes);
    std::memcpy(values + i * kLanes, &narrow, sizeof(narrow));
    total += q;
  }
  int32_t lanes[kLanes], sum = 0;
  std::memcpy(lanes, &total, sizeof(lanes));
  for (int32_t lane : lanes) sum += lane;
  *scale = most / 127.0f;
  *sum_of_block = *scale * static_cast<float>(sum);
}

}  // namespace

void quantize_row(const float* row, const float* factors, int64_t inputs, int64_t groups,
                  const RowOutputs& out) {
  for (int64_t g = 0; g < groups; ++g) {
    float group_sum = 0;
    for (int64_t b = g * kBlocksPerGroup; b < (g + 1) * kBlocksPerGroup; ++b) {
      float sum;
      const int64_t at = b * kBlock;
      quantize_block(row + at, factors ? factors + at : nullptr, inputs - at, out.values + at,
                     out.scales + b, &sum);
      group_sum += sum;
    }
    out.sums[g] = group_sum;
  }
}

void linear_tile(const PackedWeights& weights, const QuantizedRows& rows, int64_t tile,
                 float* outputs) {
  for (int64_t lane = 0; lane < kOutputTile; lane += kLanes) {
    int64_t first = 0;
    for (; first + kRows <= rows.rows; first += kRows)
      rows_block<kRows>(weights, rows, tile, lane, first, outputs);
    last_rows<kRows - 1>(weights, rows, tile, lane, first, outputs);
  }
}

}  // namespace gsslam::GSSLAM_ISA
