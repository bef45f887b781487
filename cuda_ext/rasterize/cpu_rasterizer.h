// The CPU rasteriser: a plan that owns its buffers, so that a loop of passes allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "rasterize/cpu_tile.h"
#include "rasterize/sphere_matrix.h"

namespace gsslam {

// The visible spheres in order of depth, and for each tile those that reach it.
struct Binning {
  std::vector<Splat> splats;         // by rank: nearest first, equal depths by index
  std::vector<float> radius2;        // by rank; negative where it is no longer drawn
  std::vector<uint32_t> indices;     // by rank: column of the map
  std::vector<float> features;       // by rank
  std::vector<uint32_t> first_slot;  // by rank, one more at the end: (sphere, tile) pairs before it
  std::vector<uint32_t> tile_start;  // by tile, one more at the end
  std::vector<uint32_t> tile_ranks;  // by position
  std::vector<uint32_t> tile_slots;  // by position
  int tiles_x = 0, tiles_y = 0;
};

// The tiles that one sphere reaches: bit 4 * row + column of the window whose first tile is
// `first`, or kWide if the window is too small.
struct TileSpan {
  static constexpr uint32_t kWide = 0xffffffff;
  uint32_t first, mask;
};

// Grows a buffer by half more than asked, so that a map that grows slowly rarely reallocates.
template <typename T>
void ensure(std::vector<T>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size + size / 2);
}

// Owns PlacedSpheres: x, y, z, radius, opacity.
struct PlacedBuffer {
  std::vector<float> rows[5];
  size_t count = 0;
};

class CpuRasterizer {
 public:
  explicit CpuRasterizer(int num_features);

  // Projects, sorts and bins the spheres. Returns the number of visible ones. Circles are taken
  // larger in the lists by `list_margin` pixels, so that refresh may move them.
  int64_t project(const SphereMatrix& spheres, const View& view, float list_margin = 0);

  // Projects the same spheres from another pose of the same camera, keeping their order and their
  // lists. Returns false, and leaves what cannot be drawn, where that is impossible: a circle left
  // the one that it was listed with, another came into view, or there are no lists with a margin.
  bool refresh(const View& view);

  // Writes the (5 + D, height, width) image of the projected spheres.
  void forward(float* image) const;

  struct BackwardArguments {
    const float* image;
    const float* grad_image;
    const float* error;      // (height, width) or null: no statistics
    float* grad_parameters;  // (8 + D, capacity), added to
    float* statistics;       // (kStatistics, capacity) or null: see keep_statistics
    float decay;             // of the statistics kept
    double* grad_pose;       // (12,): dL / d the upper 3 x 4 of T_camera_world
  };
  void backward(const SphereMatrix& spheres, const BackwardArguments& arguments);

  size_t bytes() const;  // of the buffers

  const View& view() const { return view_; }
  const Binning& binning() const { return bins_; }
  // The spheres of one tile; block_lists comes from the calling thread's scratch memory.
  TileSpheres tile(size_t index) const;
  size_t tile_count() const { return static_cast<size_t>(bins_.tiles_x) * bins_.tiles_y; }

 private:
  void keep_for_refresh(const SphereMatrix& spheres);
  // How far circles reach in the lists, pixels^2, by rank.
  const float* listed_radius2() const {
    return list_margin_ > 0 ? listed_radius2_.data() : bins_.radius2.data();
  }
  void sort_by_depth(size_t visible);
  void place_in_tiles();
  void count_chunk(size_t chunk);
  void fill_chunk(size_t chunk);
  void gather(const SphereMatrix& spheres, const BackwardArguments& arguments, int stride,
              size_t chunk);

  int num_features_;
  View view_{};
  Binning bins_;
  // Spheres visible in each chunk of the map, before sorting.
  std::vector<Splat> chunk_splats_;
  std::vector<float> chunk_radius2_;
  std::vector<uint32_t> chunk_indices_, chunk_left_out_;
  std::vector<uint32_t> chunk_counts_;
  float list_margin_ = 0;
  // For refresh: listed spheres by rank, those left out in the map's order.
  PlacedBuffer placed_, left_out_;
  std::vector<float> listed_x_, listed_y_, listed_radius2_;
  std::vector<uint64_t> keys_, keys_swap_;  // depth bits, then position in chunk_splats_
  std::vector<uint32_t> slot_counts_;       // by rank
  std::vector<TileSpan> spans_;             // by rank
  std::vector<uint32_t> tile_counts_;       // (chunks, tiles)
  std::vector<float> sums_;
  std::vector<double> pose_partials_;
};

}  // namespace gsslam
