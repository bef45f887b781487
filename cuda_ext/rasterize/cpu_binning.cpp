// Projection, sorting by depth and distribution to tiles. Work is cut into chunks of fixed size,
// not into one part a thread, so that the result does not depend on the number of threads.
#include <algorithm>
#include <bit>
#include <cstring>

#include "common/thread_pool.h"
#include "rasterize/cpu_projection.h"
#include "rasterize/cpu_rasterizer.h"

namespace gsslam {
namespace {

constexpr size_t kProjectChunk = 2048;  // spheres
constexpr size_t kTileChunk = 4096;     // visible spheres

size_t chunks_of(size_t count, size_t size) { return (count + size - 1) / size; }

// Tiles that a circle's bounding square reaches.
struct TileRange {
  int x0, x1, y0, y1;  // x1 and y1 exclusive
};

int clamp_tile(float pixel, int tiles) {
  return static_cast<int>(std::clamp(pixel / kTile, 0.0f, static_cast<float>(tiles)));
}

TileRange tile_range(const Splat& s, float radius2, int tiles_x, int tiles_y) {
  const float radius = std::sqrt(radius2);
  return {clamp_tile(s.mx - radius, tiles_x), clamp_tile(s.mx + radius + kTile, tiles_x),
          clamp_tile(s.my - radius, tiles_y), clamp_tile(s.my + radius + kTile, tiles_y)};
}

// Squared distance from a coordinate to the pixel centres of a tile along one axis.
float distance2(float centre, int tile, int pixels) {
  const float first = tile * kTile + 0.5f;
  const float last = std::min((tile + 1) * kTile, pixels) - 0.5f;
  const float distance = std::max(std::max(first - centre, centre - last), 0.0f);
  return distance * distance;
}

// Bits of a window of N x N tiles that a circle reaches, tested without branches.
template <int N>
uint32_t window_mask(const Splat& s, float radius2, int x0, int y0, const View& view) {
  float dx2[N], dy2[N];
  for (int i = 0; i < N; ++i) dx2[i] = distance2(s.mx, x0 + i, view.width);
  for (int i = 0; i < N; ++i) dy2[i] = distance2(s.my, y0 + i, view.height);
  uint32_t mask = 0;
  for (int y = 0; y < N; ++y)
    for (int x = 0; x < N; ++x)
      mask |= static_cast<uint32_t>(dx2[x] + dy2[y] <= radius2) << (4 * y + x);
  return mask;
}

// The tiles that a circle reaches, exactly.
TileSpan tile_span(const Splat& s, float radius2, const Binning& bins, const View& view) {
  const TileRange range = tile_range(s, radius2, bins.tiles_x, bins.tiles_y);
  const int width = range.x1 - range.x0, height = range.y1 - range.y0;
  const uint32_t first = static_cast<uint32_t>(range.y0 * bins.tiles_x + range.x0);
  if (width > 4 || height > 4) return {first, TileSpan::kWide};
  const uint32_t mask = width <= 2 && height <= 2
                            ? window_mask<2>(s, radius2, range.x0, range.y0, view)
                            : window_mask<4>(s, radius2, range.x0, range.y0, view);
  // Only what lies in the range: beyond it the image may have ended.
  const uint32_t columns = 0x1111u * ((1u << width) - 1);
  return {first, mask & columns & ((1u << (4 * height)) - 1)};
}

template <typename Visit>
void for_each_tile(const TileSpan& span, const Splat& s, float radius2, const Binning& bins,
                   const View& view, Visit visit) {
  if (span.mask != TileSpan::kWide) {
    for (uint32_t mask = span.mask; mask; mask &= mask - 1) {
      const uint32_t bit = static_cast<uint32_t>(std::countr_zero(mask));
      visit(span.first + bit / 4 * bins.tiles_x + bit % 4);
    }
    return;
  }
  const TileRange range = tile_range(s, radius2, bins.tiles_x, bins.tiles_y);
  for (int y = range.y0; y < range.y1; ++y)
    for (int x = range.x0; x < range.x1; ++x)
      if (distance2(s.mx, x, view.width) + distance2(s.my, y, view.height) <= radius2)
        visit(static_cast<size_t>(y) * bins.tiles_x + x);
}

// Moves together what chunks of spheres left out; counts says how many they did not.
void close_gaps(std::vector<uint32_t>& left_out, size_t count,
                const std::vector<uint32_t>& counts) {
  size_t to = 0;
  for (size_t chunk = 0; chunk * kProjectChunk < count; ++chunk) {
    const size_t begin = chunk * kProjectChunk;
    const size_t size = std::min(count - begin, kProjectChunk) - counts[chunk];
    std::memmove(left_out.data() + to, left_out.data() + begin, size * sizeof(uint32_t));
    to += size;
  }
}

}  // namespace

// Radix sort, stable, so that equal depths stay in the order of their indices. Positive floats sort
// like their bits; bits that all depths share are left out, which usually saves a third of the
// work.
void CpuRasterizer::sort_by_depth(size_t visible) {
  constexpr int kBits = 11, kBuckets = 1 << kBits;
  uint64_t nearest = ~uint64_t{0}, farthest = 0;
  for (size_t i = 0; i < visible; ++i) {
    nearest = std::min(nearest, keys_[i]);
    farthest = std::max(farthest, keys_[i]);
  }
  const uint64_t offset = visible ? nearest >> 32 << 32 : 0;
  const int bits = visible ? std::bit_width((farthest - offset) >> 32) : 0;
  uint64_t* from = keys_.data();
  uint64_t* to = keys_swap_.data();
  for (int shift = 32; shift < 32 + bits; shift += kBits) {
    uint32_t starts[kBuckets + 1] = {};
    const auto bucket = [&](uint64_t key) { return (key - offset) >> shift & (kBuckets - 1); };
    for (size_t i = 0; i < visible; ++i) ++starts[bucket(from[i]) + 1];
    for (int b = 0; b < kBuckets; ++b) starts[b + 1] += starts[b];
    for (size_t i = 0; i < visible; ++i) to[starts[bucket(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != keys_.data()) std::memcpy(keys_.data(), from, visible * sizeof(*from));
}

int64_t CpuRasterizer::project(const SphereMatrix& spheres, const View& view, float list_margin) {
  view_ = view;
  list_margin_ = list_margin;
  bins_.tiles_x = (view.width + kTile - 1) / kTile;
  bins_.tiles_y = (view.height + kTile - 1) / kTile;
  const size_t count = spheres.count, chunks = chunks_of(count, kProjectChunk);
  ensure(chunk_splats_, count);
  ensure(chunk_radius2_, count);
  ensure(chunk_indices_, count);
  if (list_margin > 0) ensure(chunk_left_out_, count);
  ensure(chunk_counts_, chunks);
  ensure(keys_, count);
  ensure(keys_swap_, count);
  const auto project_chunk = GSSLAM_DISPATCH(project_chunk);
  parallel_for(chunks, [&](size_t chunk) {
    const size_t begin = chunk * kProjectChunk, end = std::min(count, begin + kProjectChunk);
    chunk_counts_[chunk] = project_chunk(
        spheres, view, list_margin, begin, end,
        {chunk_splats_.data() + begin, chunk_radius2_.data() + begin, chunk_indices_.data() + begin,
         list_margin > 0 ? chunk_left_out_.data() + begin : nullptr});
  });
  size_t visible = 0;
  for (size_t chunk = 0; chunk < chunks; ++chunk)
    for (uint32_t i = 0; i < chunk_counts_[chunk]; ++i) {
      const uint64_t position = chunk * kProjectChunk + i;
      keys_[visible++] =
          uint64_t{std::bit_cast<uint32_t>(chunk_splats_[position].z)} << 32 | position;
    }
  sort_by_depth(visible);
  bins_.splats.resize(visible);
  bins_.radius2.resize(visible);
  bins_.indices.resize(visible);
  bins_.features.resize(visible * num_features_);
  parallel_for(chunks_of(visible, kTileChunk), [&](size_t chunk) {
    const size_t end = std::min(visible, (chunk + 1) * kTileChunk);
    for (size_t rank = chunk * kTileChunk; rank < end; ++rank) {
      const uint32_t position = static_cast<uint32_t>(keys_[rank]);
      bins_.splats[rank] = chunk_splats_[position];
      bins_.radius2[rank] = chunk_radius2_[position];
      bins_.indices[rank] = chunk_indices_[position];
      for (int d = 0; d < num_features_; ++d)
        bins_.features[rank * num_features_ + d] =
            spheres.data[(kFeature + d) * spheres.capacity + bins_.indices[rank]];
    }
  });
  if (list_margin > 0) {
    close_gaps(chunk_left_out_, count, chunk_counts_);
    keep_for_refresh(spheres);
  }
  place_in_tiles();
  return static_cast<int64_t>(visible);
}

void CpuRasterizer::count_chunk(size_t chunk) {
  uint32_t* counts = tile_counts_.data() + chunk * tile_count();
  const size_t end = std::min(bins_.splats.size(), (chunk + 1) * kTileChunk);
  for (size_t rank = chunk * kTileChunk; rank < end; ++rank) {
    const Splat& splat = bins_.splats[rank];
    const float radius2 = listed_radius2()[rank];
    spans_[rank] = tile_span(splat, radius2, bins_, view_);
    uint32_t tiles = 0;
    for_each_tile(spans_[rank], splat, radius2, bins_, view_, [&](size_t tile) {
      ++counts[tile];
      ++tiles;
    });
    slot_counts_[rank] = tiles;
  }
}

void CpuRasterizer::fill_chunk(size_t chunk) {
  uint32_t* next = tile_counts_.data() + chunk * tile_count();  // by now: positions to fill
  const size_t end = std::min(bins_.splats.size(), (chunk + 1) * kTileChunk);
  for (size_t rank = chunk * kTileChunk; rank < end; ++rank) {
    uint32_t slot = bins_.first_slot[rank];
    for_each_tile(spans_[rank], bins_.splats[rank], listed_radius2()[rank], bins_, view_,
                  [&](size_t tile) {
                    const uint32_t position = next[tile]++;
                    bins_.tile_ranks[position] = static_cast<uint32_t>(rank);
                    bins_.tile_slots[position] = slot++;
                  });
  }
}

void CpuRasterizer::place_in_tiles() {
  const size_t visible = bins_.splats.size(), tiles = tile_count();
  const size_t chunks = chunks_of(visible, kTileChunk);
  tile_counts_.assign(chunks * tiles, 0);
  ensure(slot_counts_, visible);
  ensure(spans_, visible);
  parallel_for(chunks, [&](size_t chunk) { count_chunk(chunk); });
  bins_.first_slot.resize(visible + 1);
  uint32_t slots = 0;
  for (size_t rank = 0; rank < visible; ++rank) {
    bins_.first_slot[rank] = slots;
    slots += slot_counts_[rank];
  }
  bins_.first_slot[visible] = slots;
  bins_.tile_start.resize(tiles + 1);
  uint32_t position = 0;
  for (size_t tile = 0; tile < tiles; ++tile) {
    bins_.tile_start[tile] = position;
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t in_chunk = tile_counts_[chunk * tiles + tile];
      tile_counts_[chunk * tiles + tile] = position;
      position += in_chunk;
    }
  }
  bins_.tile_start[tiles] = position;
  ensure(bins_.tile_ranks, position);
  ensure(bins_.tile_slots, position);
  parallel_for(chunks, [&](size_t chunk) { fill_chunk(chunk); });
}

}  // namespace gsslam
