// The two matrix products that attention is made of, on vectors of floats.
//
// Both hold a block of the result in registers. A "panel" is a matrix cut into strips of
// kPanel columns, each strip stored row after row, so that a block reads one stream.
#pragma once

#include "common/vec.h"

namespace gsslam::GSSLAM_ISA {
namespace {

// Six rows by kBlockVectors vectors of sums fill two thirds of the registers.
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = kLanes == 16 ? 4 : 2;
constexpr int64_t kPanel = kBlockVectors * kLanes;

inline int64_t panels(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

// Copies rows (count, columns) into panels of which row r stands at + r * kPanel; the columns that
// fill up the last panel are 0.
inline void copy_panel(const float* rows, int64_t stride, int64_t count, int64_t column,
                       int64_t columns, float* panel) {
  for (int64_t r = 0; r < count; ++r)
    for (int v = 0; v < kBlockVectors; ++v) {
      const int64_t at = column + v * kLanes;
      const vfloat x = at < columns ? load_first(rows + r * stride + at, columns - at) : vfloat{};
      store(panel + r * kPanel + v * kLanes, x);
    }
}

// Transposes rows (count, columns), times `factor`, into the panels of a (columns, width) matrix,
// count <= width; the rows that fill up the width are 0.
inline void transpose_panels(const float* rows, int64_t count, int64_t columns, float factor,
                             int64_t width, float* panels) {
  for (int64_t first = 0; first < width; first += kPanel, panels += kPanel * columns) {
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t r = first + lane;
      const float* row = rows + r * columns;
      if (r < count)
        for (int64_t c = 0; c < columns; ++c) panels[c * kPanel + lane] = factor * row[c];
      else
        for (int64_t c = 0; c < columns; ++c) panels[c * kPanel + lane] = 0;
    }
  }
}

template <int kRows>
inline void multiply_block(const float* a, int64_t columns, const float* panel, float* out,
                           int64_t out_stride) {
  vfloat sums[kRows][kBlockVectors] = {};
  for (int64_t c = 0; c < columns; ++c) {
    vfloat b[kBlockVectors];
    for (int v = 0; v < kBlockVectors; ++v) b[v] = load(panel + c * kPanel + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const vfloat x = splat(a[r * columns + c]);
      for (int v = 0; v < kBlockVectors; ++v) sums[r][v] += x * b[v];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kBlockVectors; ++v) store(out + r * out_stride + v * kLanes, sums[r][v]);
}

// acc (kRows, kPanel columns at acc_stride) += p^T x, p (count, p_stride), x a panel of count rows.
template <int kRows>
inline void accumulate_block(const float* p, int64_t p_stride, int64_t count, const float* panel,
                             float* acc, int64_t acc_stride) {
  vfloat sums[kRows][kBlockVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kBlockVectors; ++v) sums[r][v] = load(acc + r * acc_stride + v * kLanes);
  for (int64_t i = 0; i < count; ++i) {
    vfloat b[kBlockVectors];
    for (int v = 0; v < kBlockVectors; ++v) b[v] = load(panel + i * kPanel + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const vfloat x = splat(p[i * p_stride + r]);
      for (int v = 0; v < kBlockVectors; ++v) sums[r][v] += x * b[v];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kBlockVectors; ++v) store(acc + r * acc_stride + v * kLanes, sums[r][v]);
}

// Calls block.template operator()<rows>(first) for blocks of at most kBlockRows rows.
template <typename Block>
inline void for_row_blocks(int64_t rows, Block block) {
  int64_t r = 0;
  for (; r + kBlockRows <= rows; r += kBlockRows) block.template operator()<kBlockRows>(r);
  switch (rows - r) {
    case 5:
      return block.template operator()<5>(r);
    case 4:
      return block.template operator()<4>(r);
    case 3:
      return block.template operator()<3>(r);
    case 2:
      return block.template operator()<2>(r);
    case 1:
      return block.template operator()<1>(r);
  }
}

// out (count, width columns at out_stride) = a (count, columns) times the panels of a
// (columns, width) matrix.
inline void multiply(const float* a, int64_t count, int64_t columns, const float* panels,
                     int64_t width, float* out, int64_t out_stride) {
  for (int64_t first = 0; first < width; first += kPanel, panels += kPanel * columns)
    for_row_blocks(count, [&]<int kRows>(int64_t r) {
      multiply_block<kRows>(a + r * columns, columns, panels, out + r * out_stride + first,
                            out_stride);
    });
}

// acc (rows, panels(columns) * kPanel) += p^T x, p (count, p_stride) of which `rows` columns
// count, x (count, columns). The copy of a strip costs little beside its `rows` uses, and frees it
// from the cache conflicts of a stride that is a power of two.
inline void accumulate(const float* p, int64_t p_stride, int64_t rows, const float* x,
                       int64_t count, int64_t columns, float* panel, float* acc) {
  const int64_t stride = panels(columns) * kPanel;
  for (int64_t column = 0; column < columns; column += kPanel) {
    copy_panel(x, columns, count, column, columns, panel);
    for_row_blocks(rows, [&]<int kRows>(int64_t r) {
      accumulate_block<kRows>(p + r, p_stride, count, panel, acc + r * stride + column, stride);
    });
  }
}

}  // namespace
}  // namespace gsslam::GSSLAM_ISA
