#include "rasterize/cpu_rasterizer.h"

#include <algorithm>

#include "common/isa.h"
#include "common/thread_pool.h"
#include "common/vector_bytes.h"
#include "rasterize/cpu_blend.h"

namespace gsslam {
namespace {

constexpr size_t kGatherChunk = 2048;  // visible spheres
constexpr int kPose = 12;              // entries of the upper 3 x 4 of T_camera_world

}  // namespace

CpuRasterizer::CpuRasterizer(int num_features) : num_features_(num_features) {}

TileSpheres CpuRasterizer::tile(size_t index) const {
  // Kept from tile to tile, so that in steady state nothing is allocated.
  thread_local std::vector<uint32_t> block_lists;
  const uint32_t start = bins_.tile_start[index], count = bins_.tile_start[index + 1] - start;
  if (block_lists.size() < size_t{kMaxBlocks} * count)
    block_lists.resize(size_t{kMaxBlocks} * count * 3 / 2);
  TileSpheres t;
  t.splats = bins_.splats.data();
  t.radius2 = bins_.radius2.data();
  t.features = bins_.features.data();
  t.ranks = bins_.tile_ranks.data() + start;
  t.slots = bins_.tile_slots.data() + start;
  t.count = count;
  t.x0 = static_cast<int>(index % bins_.tiles_x) * kTile;
  t.y0 = static_cast<int>(index / bins_.tiles_x) * kTile;
  t.width = view_.width;
  t.height = view_.height;
  t.num_features = num_features_;
  t.block_lists = block_lists.data();
  return t;
}

size_t CpuRasterizer::bytes() const {
  size_t placed = 0;
  for (const PlacedBuffer* buffer : {&placed_, &left_out_})
    for (const std::vector<float>& row : buffer->rows) placed += vector_bytes(row);
  return placed + vector_bytes(bins_.splats, bins_.radius2, bins_.indices, bins_.features,
                               bins_.first_slot, bins_.tile_start, bins_.tile_ranks,
                               bins_.tile_slots, chunk_splats_, chunk_radius2_, chunk_indices_,
                               chunk_left_out_, chunk_counts_, listed_x_, listed_y_,
                               listed_radius2_, keys_, keys_swap_, slot_counts_, spans_,
                               tile_counts_, sums_, pose_partials_);
}

void CpuRasterizer::forward(float* image) const {
  const auto forward_tile = GSSLAM_DISPATCH(forward_tile);
  parallel_for(tile_count(), [&](size_t i) { forward_tile(tile(i), image); });
}

void CpuRasterizer::backward(const SphereMatrix& spheres, const BackwardArguments& arguments) {
  const int stride = kSums + num_features_ + (arguments.statistics ? kStatistics : 0);
  const size_t needed = static_cast<size_t>(bins_.first_slot.back()) * stride;
  if (sums_.size() < needed) sums_.resize(needed + needed / 2);
  const auto backward_tile = GSSLAM_DISPATCH(backward_tile);
  const BackwardTile back{arguments.image, arguments.grad_image, arguments.error, sums_.data(),
                          stride};
  parallel_for(tile_count(), [&](size_t i) { backward_tile(tile(i), back); });
  const size_t chunks = (bins_.splats.size() + kGatherChunk - 1) / kGatherChunk;
  pose_partials_.assign(chunks * kPose, 0.0);
  parallel_for(chunks, [&](size_t chunk) { gather(spheres, arguments, stride, chunk); });
  for (int k = 0; k < kPose; ++k) {
    arguments.grad_pose[k] = 0;
    for (size_t chunk = 0; chunk < chunks; ++chunk)
      arguments.grad_pose[k] += pose_partials_[chunk * kPose + k];
  }
}

// Adds up the tiles of each sphere of a chunk, in order, and applies the chain rule.
void CpuRasterizer::gather(const SphereMatrix& spheres, const BackwardArguments& arguments,
                           int stride, size_t chunk) {
  const int64_t capacity = spheres.capacity;
  const size_t end = std::min(bins_.splats.size(), (chunk + 1) * kGatherChunk);
  double* pose = pose_partials_.data() + chunk * kPose;
  for (size_t rank = chunk * kGatherChunk; rank < end; ++rank) {
    float total[kSums + kMaxFeatures + kStatistics] = {};
    const int largest = kSums + num_features_ + kStatMaxWeight;
    for (uint32_t slot = bins_.first_slot[rank]; slot < bins_.first_slot[rank + 1]; ++slot) {
      const float* sums = sums_.data() + static_cast<size_t>(slot) * stride;
      for (int k = 0; k < stride; ++k)
        total[k] = k == largest ? std::max(total[k], sums[k]) : total[k] + sums[k];
    }
    const uint32_t i = bins_.indices[rank];
    const Sphere sphere = spheres.at(i);
    const Splat& splat = bins_.splats[rank];
    const SphereGradient g = chain_rule(view_, sphere, splat, total);
    float* out = arguments.grad_parameters + i;
    for (int k = 0; k < 3; ++k) out[(kX + k) * capacity] += g.point[k];
    out[kLogRadius * capacity] += g.log_radius;
    out[kOpacityLogit * capacity] += g.opacity_logit;
    for (int k = 0; k < 3; ++k) out[(kRed + k) * capacity] += total[kSumRed + k];
    for (int d = 0; d < num_features_; ++d) out[(kFeature + d) * capacity] += total[kSums + d];
    const double world[4] = {sphere.x, sphere.y, sphere.z, 1.0};
    for (int k = 0; k < kPose; ++k) pose[k] += g.camera[k / 4] * world[k % 4];
    if (!arguments.statistics) continue;
    float pass[kStatistics];
    for (int k = 0; k < kStatistics; ++k) pass[k] = total[kSums + num_features_ + k];
    keep_statistics(pass, arguments.decay, arguments.statistics + i, capacity);
  }
}

}  // namespace gsslam
