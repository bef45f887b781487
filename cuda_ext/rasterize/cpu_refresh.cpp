// Projection from a nearby pose, with the order and the lists of the pose before.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "common/thread_pool.h"
#include "rasterize/cpu_projection.h"
#include "rasterize/cpu_rasterizer.h"

namespace gsslam {
namespace {

constexpr size_t kRefreshChunk = 4096;  // spheres; a multiple of every vector's lanes

PlacedSpheres placed(const PlacedBuffer& buffer) {
  const auto& rows = buffer.rows;
  return {rows[0].data(), rows[1].data(), rows[2].data(), rows[3].data(), rows[4].data()};
}

// Calls body(begin, end) for chunks of `count` spheres.
template <typename Body>
void for_each_chunk(size_t count, Body body) {
  parallel_for((count + kRefreshChunk - 1) / kRefreshChunk, [&](size_t chunk) {
    const size_t begin = chunk * kRefreshChunk;
    body(begin, std::min(count, begin + kRefreshChunk));
  });
}

// Copies the spheres of some columns, given in the order in which they are wanted.
void place(const SphereMatrix& spheres, const uint32_t* columns, size_t count, PlacedBuffer& to) {
  constexpr int kRows[] = {kX, kY, kZ, kLogRadius, kOpacityLogit};
  to.count = count;
  for (auto& row : to.rows) ensure(row, count);
  const auto place_spheres = GSSLAM_DISPATCH(place_spheres);
  for_each_chunk(count, [&](size_t begin, size_t end) {
    for (int k = 0; k < 5; ++k) {
      const float* row = spheres.data + kRows[k] * spheres.capacity;
      for (size_t i = begin; i < end; ++i) to.rows[k][i] = row[columns[i]];
    }
    place_spheres(to.rows[3].data() + begin, to.rows[4].data() + begin, end - begin);
  });
}

}  // namespace

void CpuRasterizer::keep_for_refresh(const SphereMatrix& spheres) {
  const size_t listed = bins_.splats.size();
  place(spheres, bins_.indices.data(), listed, placed_);
  place(spheres, chunk_left_out_.data(), spheres.count - listed, left_out_);
  ensure(listed_x_, listed);
  ensure(listed_y_, listed);
  ensure(listed_radius2_, listed);
  for (size_t rank = 0; rank < listed; ++rank) {
    const float reach = std::sqrt(bins_.radius2[rank]) + list_margin_;
    listed_x_[rank] = bins_.splats[rank].mx;
    listed_y_[rank] = bins_.splats[rank].my;
    listed_radius2_[rank] = reach * reach;
  }
}

bool CpuRasterizer::refresh(const View& view) {
  if (list_margin_ <= 0 || view.width != view_.width || view.height != view_.height) return false;
  view_ = view;
  const auto refresh_splats = GSSLAM_DISPATCH(refresh_splats);
  const auto any_in_image = GSSLAM_DISPATCH(any_in_image);
  const ListedCircles listed{listed_x_.data(), listed_y_.data(), listed_radius2_.data()};
  std::atomic<bool> stale = false;
  for_each_chunk(placed_.count, [&](size_t begin, size_t end) {
    if (!refresh_splats(placed(placed_), listed, view, begin, end, bins_.splats.data(),
                        bins_.radius2.data()))
      stale = true;
  });
  if (!stale)
    for_each_chunk(left_out_.count, [&](size_t begin, size_t end) {
      if (any_in_image(placed(left_out_), view, begin, end)) stale = true;
    });
  if (stale) list_margin_ = 0;  // what is left is of no pose
  return !stale;
}

}  // namespace gsslam
