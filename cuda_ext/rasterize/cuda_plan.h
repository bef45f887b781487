// What the CUDA rasteriser's kernels share: the addresses and sizes of a plan, passed by value.
//
// A tile of 16 x 16 pixels has eight cells of 8 x 4 pixels, one for each warp that blends it. Every
// (sphere, tile) pair is an entry of the tile's list while it is sorted; every (sphere, cell) pair
// is an item of the cell's list afterwards, and has a slot where the backward pass stores the
// cell's sums, so that nothing is added up by atomics on floats.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "rasterize/math.h"
#include "tracking/tracking.h"

namespace gsslam {

inline constexpr int kCellWidth = 8, kCellHeight = 4;
inline constexpr int kTileCells = 8;   // two columns, four rows
inline constexpr int kBlendWarps = 2;  // a block blends a quarter of a tile
inline constexpr int kBlocksOfTile = kTileCells / kBlendWarps;
inline constexpr int kBlendThreads = 32 * kBlendWarps;
inline constexpr int kBinThreads = 256;
inline constexpr int kBinWarps = kBinThreads / 32;
inline constexpr int kGatherThreads = 128;
inline constexpr int kCounterStride = 8;  // tile counters lie in memory sectors of their own
inline constexpr int kIndexBits = 24;     // of a cell word: the sphere; the other eight are cells
inline constexpr int64_t kMaxSpheres = int64_t{1} << kIndexBits;
inline constexpr uint32_t kIndexMask = kMaxSpheres - 1;
inline constexpr int kPoseSums = 12;  // entries of the upper 3 x 4 of T_camera_world

inline constexpr uint32_t kMaxSegments = 4096;
inline constexpr int kSegmentPlanes = 7;  // see Segment

// A sphere of a cell's list.
struct CellItem {
  uint32_t index;  // of the sphere
  uint32_t slot;   // of its sums over this cell
};

// The list of a cell: its first item and the number of them. A long one is cut into segments.
struct CellList {
  uint32_t first, size;
  uint32_t is_long;
};

// A part of a long list, blended on its own from the light that the parts before let through. For
// each pixel of the cell it has kSegmentPlanes numbers: what it lets through by itself, what comes
// to it, and what it adds to the five planes.
struct Segment {
  uint32_t cell;   // tile x kTileCells + cell
  uint32_t place;  // among the cell's
  uint32_t of;     // number of them, or 0: not in use
  uint32_t first_item, end_item;
};

enum SegmentProgress : uint32_t { kSegmentOpen, kSegmentMeasured, kSegmentDark };

// Lives on the device, so that captured graphs find the pass's values there.
struct RasterState {
  View view;
  uint32_t count;           // spheres
  uint32_t visible;         // among them, after projection
  uint64_t entries, cells;  // that the pass needs
  // Set if they did not fit; nothing is drawn from then on, until the host has made room.
  uint32_t overflow;
  // Whether the lists are to be made; if not, the ones there are used again.
  uint32_t stale;
  uint32_t halt;    // set where what follows is not needed: nothing is projected or listed
  uint32_t ticket;  // counts blocks, to know the last; 0 between kernels
  uint32_t items;   // given to lists so far
  // Lists longer than this are cut into segments. Both follow the work there is for each warp that
  // the GPU can hold: cutting pays where a few lists hold most of it.
  uint32_t longest_whole, segment_size;
  uint32_t segments;                         // of all lists
  uint32_t segment_ticket, segment_leavers;  // 0 between kernels
  float margin;  // pixels by which circles are taken larger in the lists, so that they may move

  GSSLAM_HD bool keeps_lists() const { return overflow || halt || !stale; }
};

struct RasterPlan {
  RasterState* state;
  const float* parameters;  // (8 + D, capacity)
  int64_t capacity;
  int64_t max_count;  // spheres that the buffers hold and the launches cover
  int num_features;
  int width, height, tiles_x, tiles_y;

  Splat* splats;           // by sphere; opacity is log2(opacity) here
  float* radius2;          // by sphere, with the margin
  float2* listed_at;       // by sphere: centre when the lists were made, or null
  float* features;         // by sphere, D each
  PoseSplat* pose_splats;  // by sphere, or null
  uint32_t* cell_counts;   // by sphere
  uint32_t* first_cell;    // by sphere
  uint32_t* block_cells;   // by block of spheres: cells, then cells before it
  uint32_t* warp_cells;    // by warp of spheres: cells before it in its block
  uint32_t* tile_next;     // by tile, kCounterStride apart: entries, then the next to be filled
  uint32_t* tile_start;    // by tile, one more at the end
  uint32_t* tile_order;    // tiles, longest list first
  uint64_t* keys;          // by entry: depth bits, first cell
  uint64_t* sort_space;    // by entry, for lists that shared memory does not hold
  uint32_t* cell_words;    // by cell, where it is the first of an entry: see kIndexBits
  CellItem* items;         // by cell
  CellList* cell_lists;    // by tile x kTileCells + cell
  // Null where lists are not cut.
  Segment* segments;
  uint32_t* segment_progress;  // by segment
  uint32_t* segments_done;     // of a cell, at its first segment
  float* segment_pixels;       // (kMaxSegments, kSegmentPlanes, 32)
  int segment_blocks;          // of each launch
  int warp_slots;              // warps that the GPU holds at a time
  uint64_t max_entries, max_cells;

  GSSLAM_HD int tiles() const { return tiles_x * tiles_y; }
  GSSLAM_HD int64_t pixels() const { return static_cast<int64_t>(width) * height; }
};

struct CudaBackward {
  const float* image;
  const float* grad_image;
  const float* error;  // (height, width) or null: no statistics
  float* sums;         // (cells, stride)
  int stride;          // kSums + D + (statistics ? kStatistics : 0)
};

}  // namespace gsslam
