// The update of one chunk of spheres, on vectors of spheres. It goes row by row: with thousands of
// spheres a row's chunk is contiguous memory, and all rows of a chunk fit the second-level cache.
#define GSSLAM_WIDE
#include "optimizer/cpu_adam_chunk.h"

#include "common/vec.h"

namespace gsslam::GSSLAM_ISA {
namespace {

// What a chunk's spheres have in common over their rows. Vectors past the last sphere are
// untouched.
struct ChunkState {
  vint stepped[kAdamChunk / kLanes];  // all bits set where the sphere is stepped
  bool live[kAdamChunk / kLanes];     // any of the vector's
  float correction1[kAdamChunk];
  float correction2[kAdamChunk];
};

// Says in `state.stepped` which spheres are to be stepped, and counts them.
AdamCounts find_touched(const AdamSpheres& s, int64_t first, int64_t count, ChunkState& state) {
  vint touched[kAdamChunk / kLanes], finite[kAdamChunk / kLanes];
  for (int64_t b = 0; b * kLanes < count; ++b) touched[b] = vint{}, finite[b] = ~vint{};
  for (int row = 0; row < s.rows; ++row) {
    const float* gradient = s.gradient + row * s.capacity + first;
    for (int64_t b = 0; b * kLanes < count; ++b) {
      const vfloat g = load_first(gradient + b * kLanes, count - b * kLanes);
      touched[b] |= g != 0.0f;
      finite[b] &= abs(g) < kMaxGradient;
    }
  }
  vint stepped{}, skipped{};
  for (int64_t b = 0; b * kLanes < count; ++b) {
    state.stepped[b] = touched[b] & finite[b];
    state.live[b] = any(state.stepped[b]);
    stepped -= state.stepped[b];  // a lane that holds is -1
    skipped -= touched[b] & ~finite[b];
  }
  AdamCounts counts;
  for (int i = 0; i < kLanes; ++i) counts.stepped += stepped[i], counts.skipped += skipped[i];
  return counts;
}

// Counts the step of every stepped sphere and looks up its bias corrections.
void count_steps(const AdamRates& rates, int32_t* steps, int64_t count, ChunkState& state) {
  for (int64_t i = 0; i < count; ++i) {
    state.correction1[i] = state.correction2[i] = 1;
    if (!state.stepped[i / kLanes][i % kLanes]) continue;
    if (steps[i] < INT32_MAX) ++steps[i];
    if (steps[i] >= rates.table_size) continue;
    state.correction1[i] = rates.correction1[steps[i]];
    state.correction2[i] = rates.correction2[steps[i]];
  }
}

vfloat choose(vint mask, vfloat a, vfloat b) { return mask ? a : b; }

void step_row(const AdamSpheres& s, const AdamRates& rates, int row, int64_t first, int64_t count,
              const ChunkState& state) {
  const int64_t start = row * s.capacity + first;
  const float rate = s.learning_rates[row];
  for (int64_t b = 0; b * kLanes < count; ++b) {
    if (!state.live[b]) continue;
    const vint stepped = state.stepped[b];
    const int64_t i = start + b * kLanes, lanes = count - b * kLanes;
    const vfloat g = load_first(s.gradient + i, lanes);
    const vfloat m0 = load_first(s.first_moment + i, lanes);
    const vfloat v0 = load_first(s.second_moment + i, lanes);
    const vfloat p0 = load_first(s.parameters + i, lanes);
    const vfloat m = m0 + rates.weight1 * (g - m0);
    const vfloat v = v0 + rates.weight2 * (g * g - v0);
    const vfloat denominator = sqrt(v) * load(state.correction2 + b * kLanes) + rates.epsilon;
    const vfloat p = p0 - rate * load(state.correction1 + b * kLanes) * m / denominator;
    store_first(s.first_moment + i, choose(stepped, m, m0), lanes);
    store_first(s.second_moment + i, choose(stepped, v, v0), lanes);
    store_first(s.parameters + i, choose(stepped, p, p0), lanes);
  }
  std::memset(s.gradient + start, 0, sizeof(float) * count);
}

}  // namespace

AdamCounts adam_chunk(const AdamSpheres& s, const AdamRates& rates, size_t chunk) {
  ChunkState state;
  const int64_t first = static_cast<int64_t>(chunk) * kAdamChunk;
  const int64_t count = s.count - first < kAdamChunk ? s.count - first : kAdamChunk;
  const AdamCounts counts = find_touched(s, first, count, state);
  if (counts.stepped + counts.skipped == 0) return counts;  // the gradient is 0 as it is
  count_steps(rates, s.steps + first, count, state);
  for (int row = 0; row < s.rows; ++row) step_row(s, rates, row, first, count, state);
  return counts;
}

}  // namespace gsslam::GSSLAM_ISA
