#include "quant/cpu_linear.h"

#include <algorithm>
#include <vector>

#include "common/thread_pool.h"
#include "quant/cpu_linear_tile.h"

namespace gsslam {
namespace {

struct LinearFunctions {
  const char* name;
  decltype(&portable::quantize_row) quantize_row;
  decltype(&portable::linear_tile) linear_tile;
};

LinearFunctions choose(bool vnni) {
#ifdef GSSLAM_AVX512VNNI
  if (vnni && current_isa() == Isa::avx512 && __builtin_cpu_supports("avx512vnni"))
    return {"avx512vnni", &avx512vnni::quantize_row, &avx512vnni::linear_tile};
#endif
#ifdef GSSLAM_AVXVNNI
  if (vnni && current_isa() == Isa::avx2 && __builtin_cpu_supports("avxvnni"))
    return {"avxvnni", &avxvnni::quantize_row, &avxvnni::linear_tile};
#endif
  (void)vnni;
  return {isa_name(), GSSLAM_DISPATCH(quantize_row), GSSLAM_DISPATCH(linear_tile)};
}

// Kept from call to call, so that in steady state nothing is allocated.
struct Scratch {
  std::vector<int8_t> values;
  std::vector<float> scales, sums;

  void reserve(size_t rows, size_t groups) {
    values.resize(std::max(values.size(), rows * groups * kGroup));
    scales.resize(std::max(scales.size(), rows * groups * (kGroup / kBlock)));
    sums.resize(std::max(sums.size(), rows * groups));
  }
};

}  // namespace

const char* linear_kernel(bool vnni) { return choose(vnni).name; }

void linear(const PackedWeights& weights, const float* inputs, const float* factors, int64_t rows,
            bool vnni, float* outputs) {
  const LinearFunctions functions = choose(vnni);
  thread_local Scratch scratch;
  scratch.reserve(static_cast<size_t>(rows), static_cast<size_t>(weights.groups));
  // Other threads have a scratch of their own under the same name.
  const RowOutputs q{scratch.values.data(), scratch.scales.data(), scratch.sums.data()};
  const int64_t groups = weights.groups;
  constexpr int64_t kRowsPerTask = 8;
  parallel_for(static_cast<size_t>((rows + kRowsPerTask - 1) / kRowsPerTask), [&](size_t task) {
    const int64_t first = static_cast<int64_t>(task) * kRowsPerTask;
    for (int64_t r = first; r < std::min(rows, first + kRowsPerTask); ++r)
      functions.quantize_row(inputs + r * weights.inputs, factors, weights.inputs, groups,
                             {q.values + r * groups * kGroup,
                              q.scales + r * groups * (kGroup / kBlock), q.sums + r * groups});
  });
  const QuantizedRows quantized{q.values, q.scales, q.sums, rows};
  const int64_t tiles = (weights.outputs + kOutputTile - 1) / kOutputTile;
  // Enough work in a task to be worth a thread's waking up.
  const int64_t step = std::max<int64_t>(
      1, (int64_t{1} << 18) / std::max<int64_t>(rows * weights.inputs * kOutputTile, 1));
  parallel_for(static_cast<size_t>((tiles + step - 1) / step), [&](size_t task) {
    const int64_t first = static_cast<int64_t>(task) * step;
    for (int64_t tile = first; tile < std::min(tiles, first + step); ++tile)
      functions.linear_tile(weights, quantized, tile, outputs);
  });
}

}  // namespace gsslam
