#include "tracking/cpu_tracking.h"

#include <algorithm>

#include "common/isa.h"
#include "common/thread_pool.h"

namespace gsslam {

#define GSSLAM_DECLARE(isa)                                                                        \
  namespace isa {                                                                                  \
  void normal_equations_tile(const TileSpheres& tile, const PoseSplat* pose_splats,                \
                             const Observation& seen, const TrackingWeights& weights,              \
                             const PatchSampling& sampling, double* out);                          \
  void residuals_tile(const TileSpheres& tile, const Observation& seen,                            \
                      const TrackingWeights& weights, const PatchSampling& sampling, double* out); \
  }
GSSLAM_FOR_EACH_ISA(GSSLAM_DECLARE)
#undef GSSLAM_DECLARE

namespace {

constexpr size_t kChunk = 4096;  // visible spheres

PoseSplat pose_splat(const View& view, const Splat& splat) {
  const SplatGeometry g = geometry_of(view, splat);
  const AlphaJacobian j = alpha_jacobian(view, g);
  return {j.a, j.b, j.c, j.e, j.q0, j.q1, g.x, g.y};
}

}  // namespace

void CpuTracking::normal_equations(const CpuRasterizer& plan, const Observation& seen,
                                   const TrackingWeights& weights, const PatchSampling& sampling,
                                   double* sums) {
  const std::vector<Splat>& splats = plan.binning().splats;
  pose_splats_.resize(splats.size());
  parallel_for((splats.size() + kChunk - 1) / kChunk, [&](size_t chunk) {
    const size_t end = std::min(splats.size(), (chunk + 1) * kChunk);
    for (size_t rank = chunk * kChunk; rank < end; ++rank)
      pose_splats_[rank] = pose_splat(plan.view(), splats[rank]);
  });
  const auto tile_equations = GSSLAM_DISPATCH(normal_equations_tile);
  sum_tiles(plan, sums, [&](size_t i, double* out) {
    tile_equations(plan.tile(i), pose_splats_.data(), seen, weights, sampling, out);
  });
}

void CpuTracking::residuals(const CpuRasterizer& plan, const Observation& seen,
                            const TrackingWeights& weights, const PatchSampling& sampling,
                            double* sums) {
  const auto tile_residuals = GSSLAM_DISPATCH(residuals_tile);
  sum_tiles(plan, sums, [&](size_t i, double* out) {
    tile_residuals(plan.tile(i), seen, weights, sampling, out);
  });
}

// Calls tile_sums(tile, its kTrackSums) for all tiles and adds them up in order.
template <typename TileSums>
void CpuTracking::sum_tiles(const CpuRasterizer& plan, double* sums, TileSums tile_sums) {
  const size_t tiles = plan.tile_count();
  tile_sums_.resize(tiles * kTrackSums);
  parallel_for(tiles, [&](size_t i) { tile_sums(i, tile_sums_.data() + i * kTrackSums); });
  std::fill(sums, sums + kTrackSums, 0.0);
  for (size_t i = 0; i < tiles; ++i)
    for (int k = 0; k < kTrackSums; ++k) sums[k] += tile_sums_[i * kTrackSums + k];
}

}  // namespace gsslam
