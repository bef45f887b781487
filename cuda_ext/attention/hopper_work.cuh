// Work of attention's forward pass for Hopper, and where it lies in shared memory.
#pragma once

#include "attention/attention.h"
#include "attention/hopper_products.cuh"
#include "common/reduce.cuh"

namespace gsslam {

inline constexpr int kHopperRows = 128, kHopperThreads = 3 * 128;

// Keys of a tile: sums and scores of a warpgroup share its registers.
template <int kChunk>
inline constexpr int kHopperTile = kChunk <= 64 ? 128 : 64;

// Blocks of rows times chunks of columns. The first `whole` have all keys; those behind are split
// by keys in `splits`, so that the last turn of a GPU's multiprocessors is a full one.
struct HopperWork {
  int64_t row_blocks, chunks, blocks, whole;
  int splits;

  constexpr int64_t units() const { return whole + (blocks - whole) * splits; }
};

struct HopperForward {
  AttentionShape shape;
  AttentionMask mask;
  float scale;
  HopperWork work;
  int places;  // of tiles in shared memory
  void* output;
  float* log_sum_exp;
  float* parts;  // (split units, 128 rows, chunk + 1): sums, log-sum-exp
  CUtensorMap query, key, value;
};

// Where a unit of work lies.
struct HopperUnit {
  int64_t item, head, row;  // row: of the block's first query
  int chunk;
  int64_t part;  // -1: the block is whole
  int64_t length, begin;
  int tiles;

  template <int kTile>
  static __device__ HopperUnit of(const HopperForward& a, int64_t unit) {
    const HopperWork& w = a.work;
    HopperUnit u;
    u.part = unit < w.whole ? -1 : unit - w.whole;
    const int64_t block = u.part < 0 ? unit : w.whole + u.part / w.splits;
    u.chunk = static_cast<int>(block % w.chunks);
    const int64_t rows = block / w.chunks;
    u.row = rows % w.row_blocks * kHopperRows;
    const int64_t matrix = rows / w.row_blocks;
    u.item = matrix / a.shape.heads;
    u.head = matrix % a.shape.heads;
    u.length = a.mask.length(u.item, a.shape.keys);
    const int64_t last = min(u.row + kHopperRows, a.shape.queries) - 1;
    const KeyRange range = visible_keys(a.mask, u.length, u.row, last);
    const int64_t all = range.end > range.begin ? (range.end - range.begin + kTile - 1) / kTile : 0;
    const int split = u.part < 0 ? 0 : static_cast<int>(u.part % w.splits);
    const int splits = u.part < 0 ? 1 : w.splits;
    const int64_t first = all * split / splits;
    u.begin = range.begin + first * kTile;
    u.tiles = static_cast<int>(all * (split + 1) / splits - first);
    return u;
  }
};

// Where things lie in shared memory, in bytes behind a multiple of 1024.
template <int kChunk>
struct HopperLayout {
  static constexpr int kTile = kHopperTile<kChunk>;
  static constexpr int kPlaceGroups = kChunk / kGroupColumns;
  static constexpr int kTileGroupBytes = kTile * kGroupBytes;  // a group of columns of a tile
  static constexpr int kQueryGroupBytes = kHopperRows * kGroupBytes;
  static constexpr int kPlaceBytes = kPlaceGroups * kTileGroupBytes;
  static constexpr int kBarrierBytes = 256, kMostPlaces = 8;
  // Of a thread; the multiprocessor has 65,536.
  static constexpr int kCopyingRegisters = kChunk == 256 ? 24 : 40;
  static constexpr int kSummingRegisters = kChunk == 256 ? 240 : 232;
  int groups, key_places, query_bytes;

  __host__ __device__ explicit HopperLayout(int64_t dim)
      : groups(static_cast<int>((dim + kGroupColumns - 1) / kGroupColumns)),
        key_places((groups + kPlaceGroups - 1) / kPlaceGroups),
        query_bytes(groups * kQueryGroupBytes) {}

  // Places that fit; 0 where they are too few.
  int places(int limit) const {
    const int fit = (limit - 1024 - kBarrierBytes - query_bytes) / kPlaceBytes;
    return fit < key_places + 1 ? 0 : fit < kMostPlaces ? fit : kMostPlaces;
  }
  int bytes(int places) const { return 1024 + kBarrierBytes + query_bytes + places * kPlaceBytes; }
};

}  // namespace gsslam
