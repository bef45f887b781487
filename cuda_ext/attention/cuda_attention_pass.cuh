// The four passes of attention as one kernel. A block has some rows of one side, the queries or the
// keys, goes through the other side's rows by tiles, makes a matrix of weights W of them, and sums
// W times a matrix X of the other side's rows in registers:
//
//   pass     rows     first product   second product       W                     X
//   output   queries  query keyT      -                    softmax               value
//   query    queries  query keyT      grad_output valueT   gradient of scores    key
//   value    keys     key queryT      -                    weights               grad_output
//   key      keys     key queryT      value grad_outputT   gradient of scores    query
//
// Every sum is made by one block in a fixed order, so that no atomics are needed.
#pragma once

#include "attention/attention.h"
#include "attention/cuda_tensor_core.cuh"
#include "common/reduce.cuh"

namespace gsslam {

enum class Pass { output, query, value, key };

inline constexpr int kWarps = 8, kAttentionThreads = 32 * kWarps;
inline constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

template <typename T>
struct PassArguments {
  AttentionShape shape;
  AttentionMask mask;
  float scale;
  const T *query, *key, *value, *grad_output;
  float* log_sum_exp;  // written by the output pass, read by the others
  const float* delta;
  T* result;
  float*
      parts;  // of the output pass, if there are several splits: (splits, queries, value_dim + 1)
  int splits;
};

__host__ __device__ constexpr int round_up(int value, int step) {
  return (value + step - 1) / step * step;
}

constexpr bool rows_are_queries(Pass pass) { return pass == Pass::output || pass == Pass::query; }
constexpr bool has_second_product(Pass pass) { return pass == Pass::query || pass == Pass::key; }

// Rows of a block. The output pass has twice as many where the registers hold its sums, as then
// each tile of keys and values that comes from the second-level cache serves twice as many.
template <Pass kPass, int kChunk>
inline constexpr int kRowsFor =
    kPass == Pass::output && (kChunk == 128 || kChunk == 256) ? 128 : 64;

// Where things lie in shared memory, in elements of 16 bits; the same on host and device.
template <Pass kPass, int kChunk, int kTile>
struct PassLayout {
  static constexpr int kRowTile = kRowsFor<kPass, kChunk>;
  int dim, value_dim;  // padded to whole steps of 16
  int first_width;     // of the other side's factor of the first product
  int row1, row2, other1, other2, x, weights, floats, bytes;

  __host__ __device__ PassLayout(int d, int e) {
    dim = round_up(d, 16);
    value_dim = round_up(e, 16);
    // Where the factor is X at the same time, the last chunk of it must be there in full.
    first_width = has_second_product(kPass) ? round_up(d, kChunk) : dim;
    row1 = 0;
    row2 = row1 + kRowTile * (dim + kRowPad);
    other1 = row2 + (has_second_product(kPass) ? kRowTile * (value_dim + kRowPad) : 0);
    other2 = other1 + kTile * (first_width + kRowPad);
    x = other2 + (has_second_product(kPass) ? kTile * (value_dim + kRowPad) : 0);
    weights = x + (has_second_product(kPass) ? 0 : 2 * kTile * (kChunk + kRowPad));
    floats = weights + kRowTile * (kTile + kRowPad);
    bytes = 2 * floats + 4 * (4 * kRowTile + kRowTile);
  }
};

// Copies `rows` rows of `width` elements, of which `valid` rows and `columns` columns exist; a warp
// for a row, and a lane for eight elements.
template <typename T>
__device__ __forceinline__ void load_rows(T* to, int width, const T* from, int stride, int rows,
                                          int valid, int columns) {
  const int warp = threadIdx.x / 32, first = threadIdx.x % 32 * 8;
  T* target = to + warp * (width + kRowPad);
  const T* source = from + static_cast<int64_t>(warp) * stride;
  for (int row = warp; row < rows; row += kWarps) {
    for (int c = first; c < width; c += 256) {
      const bool exists = row < valid && c < columns;
      copy_async(target + c, exists ? source + c : from, exists);
    }
    target += kWarps * (width + kRowPad);
    source += kWarps * stride;
  }
}

// How the warps share a matrix of scores: kRows by kColumns blocks of 32 rows.
template <int kRowTile, int kTile>
struct ScoreLayout {
  static constexpr int kRows = kRowTile / 32, kColumns = kWarps / kRows;
  static constexpr int kBlocks = kTile / kColumns / 8;  // of 8 columns
  static __device__ int row() { return threadIdx.x / 32 / kColumns * 32 + threadIdx.x % 32 / 4; }
  static __device__ int column() {
    return threadIdx.x / 32 % kColumns * (kTile / kColumns) + threadIdx.x % 4 * 2;
  }
};

// A warp's scores: of row() + 16 m + 8 h and column() + 8 n + i it holds [m][n][2 h + i].
template <int kRowTile, int kTile>
using Scores = float[2][ScoreLayout<kRowTile, kTile>::kBlocks][4];

template <int kRowTile, int kTile, typename T>
__device__ __forceinline__ void row_product(Scores<kRowTile, kTile>& s, const T* rows,
                                            int row_stride, const T* others, int other_stride,
                                            int steps) {
  using Layout = ScoreLayout<kRowTile, kTile>;
  constexpr int kLoads = (Layout::kBlocks + 1) / 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t a0 = shared_address(rows + warp / Layout::kColumns * 32 * row_stride) +
                      first_factor_offset(lane, row_stride);
  const uint32_t b0 =
      shared_address(others + warp % Layout::kColumns * (kTile / Layout::kColumns) * other_stride) +
      second_factor_offset(Layout::kBlocks > 1 ? lane : lane % 16, other_stride);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < Layout::kBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
#pragma unroll 4
  for (int k = 0; k < steps; ++k) {
    uint32_t a[2][4], b[kLoads][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) load_matrices(a[m], a0 + 2 * (m * 16 * row_stride + 16 * k));
#pragma unroll
    for (int n = 0; n < kLoads; ++n) load_matrices(b[n], b0 + 2 * (n * 16 * other_stride + 16 * k));
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < Layout::kBlocks; ++n)
        multiply_add<T>(s[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
  }
}

// How the warps share the sums (kRowTile, kChunk): kRows by kColumns blocks.
template <int kRowTile, int kChunk>
struct SumLayout {
  static constexpr int kColumns = kRowTile == 128 || kChunk <= 64 ? 2 : kChunk <= 256 ? 4 : 8;
  static constexpr int kRows = kWarps / kColumns;
  static constexpr int kRowBlocks = kRowTile / kRows / 16;     // of 16
  static constexpr int kColumnBlocks = kChunk / kColumns / 8;  // of 8
};

template <int kRowTile, int kChunk>
using Sums =
    float[SumLayout<kRowTile, kChunk>::kRowBlocks][SumLayout<kRowTile, kChunk>::kColumnBlocks][4];

// sums += weights (kRowTile, kTile) x (kTile, kChunk).
template <int kRowTile, int kChunk, int kTile, typename T>
__device__ __forceinline__ void add_product(Sums<kRowTile, kChunk>& sums, const T* weights,
                                            const T* x, int x_stride) {
  using Layout = SumLayout<kRowTile, kChunk>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / Layout::kColumns * Layout::kRowBlocks * 16;
  const int column = warp % Layout::kColumns * Layout::kColumnBlocks * 8;
  const uint32_t a0 = shared_address(weights + row * (kTile + kRowPad)) +
                      first_factor_offset(lane, kTile + kRowPad);
  const uint32_t b0 =
      shared_address(x + column) + first_factor_offset(lane, x_stride);  // the same pattern
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
    uint32_t a[Layout::kRowBlocks][4];
#pragma unroll
    for (int m = 0; m < Layout::kRowBlocks; ++m)
      load_matrices(a[m], a0 + 2 * (m * 16 * (kTile + kRowPad) + 16 * k));
#pragma unroll
    for (int n = 0; n < Layout::kColumnBlocks; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, b0 + 2 * (k * 16 * x_stride + 8 * n));
#pragma unroll
      for (int m = 0; m < Layout::kRowBlocks; ++m) {
        multiply_add<T>(sums[m][n], a[m], b[0], b[1]);
        multiply_add<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// The rows and the other side's tiles that a block has.
struct PassWork {
  int64_t item, head;        // of the rows
  int64_t first;             // row
  int64_t length;            // keys that count
  int64_t rows;              // that the side has
  int64_t begin, end;        // of the other side's rows
  unsigned per_head;         // tiles
  unsigned tile, last_tile;  // of all heads of a group, one after the other
  int chunk, split;
};

template <Pass kPass, int kRowTile, int kTile, typename T>
__device__ __forceinline__ PassWork pass_work(const PassArguments<T>& a) {
  constexpr bool kQueries = rows_are_queries(kPass);
  const AttentionShape& s = a.shape;
  const unsigned heads = static_cast<unsigned>(kQueries ? s.heads : s.kv_heads);
  PassWork w;
  w.item = blockIdx.y / heads;
  w.head = blockIdx.y % heads;
  w.first = static_cast<int64_t>(blockIdx.x) * kRowTile;
  w.length = a.mask.length(w.item, s.keys);
  w.rows = kQueries ? s.queries : s.keys;
  const int64_t counted = kQueries ? s.queries : w.length;
  const int64_t last = min(w.first + kRowTile, counted) - 1;
  KeyRange range{0, 0};
  if (last >= w.first)
    range = kQueries ? visible_keys(a.mask, w.length, w.first, last)
                     : seeing_queries(a.mask, s.queries, w.first, last);
  w.begin = range.begin;
  w.end = range.end;
  w.per_head = range.end > range.begin
                   ? static_cast<unsigned>((range.end - range.begin + kTile - 1) / kTile)
                   : 0;
  const int64_t tiles = w.per_head * (kQueries ? 1 : s.group());
  w.chunk = blockIdx.z / a.splits;
  w.split = blockIdx.z % a.splits;
  w.tile = static_cast<unsigned>(tiles * w.split / a.splits);
  w.last_tile = static_cast<unsigned>(tiles * (w.split + 1) / a.splits);
  return w;
}

// Whether a query sees a key.
__device__ __forceinline__ bool sees(const AttentionMask& mask, int64_t length, int64_t queries,
                                     int64_t query, int64_t key) {
  const int64_t position = query + mask.offset;
  return key < length && query < queries && (mask.left < 0 || key >= position - mask.left) &&
         (mask.right < 0 || key <= position + mask.right);
}

// Whether any of the pairs of two tiles is not seen.
__device__ __forceinline__ bool needs_mask(const AttentionMask& mask, int64_t length,
                                           int64_t queries, int64_t query, int64_t query_count,
                                           int64_t key, int64_t key_count) {
  const int64_t last_query = query + query_count - 1, last_key = key + key_count - 1;
  return last_key >= length || last_query >= queries ||
         (mask.left >= 0 && key < last_query + mask.offset - mask.left) ||
         (mask.right >= 0 && last_key > query + mask.offset + mask.right);
}

}  // namespace gsslam
