// The kernel of attention's passes: see cuda_attention_pass.cuh.
#pragma once

#include "attention/cuda_attention_pass.cuh"

namespace gsslam {

// Addresses of the other side's rows of a tile.
template <typename T>
struct OtherTile {
  const T *first, *second;  // the products' factors; X is the one that has no product
  int64_t start, count;
  int64_t query_row;  // of (batch, heads, queries), where the other side are queries
};

template <Pass kPass, int kTile, typename T>
__device__ __forceinline__ OtherTile<T> other_tile(const PassArguments<T>& a, const PassWork& w,
                                                   unsigned tile) {
  const AttentionShape& s = a.shape;
  OtherTile<T> t{};
  const unsigned group_head = rows_are_queries(kPass) ? 0 : tile / w.per_head;
  t.start = w.begin + static_cast<int64_t>(tile - group_head * w.per_head) * kTile;
  t.count = min(static_cast<int64_t>(kTile), w.end - t.start);
  if constexpr (rows_are_queries(kPass)) {
    const int64_t row = (w.item * s.kv_heads + w.head / s.group()) * s.keys + t.start;
    t.first = a.key + row * s.dim;
    t.second = a.value + row * s.value_dim;
  } else {
    const int64_t head = w.head * s.group() + group_head;
    t.query_row = (w.item * s.heads + head) * s.queries + t.start;
    t.first = a.query + t.query_row * s.dim;
    t.second = a.grad_output + t.query_row * s.value_dim;
  }
  return t;
}

// Softmax of a block's rows as their scores come by; a thread has four rows' worth of columns.
template <int kRowTile, int kTile>
struct OnlineSoftmax {
  using Layout = ScoreLayout<kRowTile, kTile>;
  float maximum[2][2], sum[2][2];

  __device__ OnlineSoftmax() {
    for (int m = 0; m < 2; ++m)
      for (int h = 0; h < 2; ++h) {
        maximum[m][h] = -INFINITY;
        sum[m][h] = 0;
      }
  }

  static __device__ bool first_of_row() { return threadIdx.x % 4 == 0; }
  static __device__ int warp_column() { return threadIdx.x / 32 % Layout::kColumns; }

  // Largest score of every row in this warp's columns, for all warps to see.
  __device__ void share_maxima(const Scores<kRowTile, kTile>& s, float* shared) const {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < Layout::kBlocks; ++n)
          most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
        most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
        if (first_of_row())
          shared[warp_column() * kRowTile + Layout::row() + 16 * m + 8 * h] = most;
      }
  }

  // Turns scores into weights; returns whether sums so far must be multiplied with `factors`.
  __device__ bool take(Scores<kRowTile, kTile>& s, const float* shared, float* factors) {
    bool changed = false;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = Layout::row() + 16 * m + 8 * h;
        float most = maximum[m][h];
#pragma unroll
        for (int i = 0; i < Layout::kColumns; ++i) most = fmaxf(most, shared[i * kRowTile + row]);
        const float reference = most == -INFINITY ? 0 : most;
        const float factor = exp2f(maximum[m][h] - reference);
        float total = 0;
#pragma unroll
        for (int n = 0; n < Layout::kBlocks; ++n)
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            s[m][n][e] = exp2f(s[m][n][e] - reference);
            total += s[m][n][e];
          }
        sum[m][h] = sum[m][h] * factor + total;
        maximum[m][h] = most;
        changed |= factor != 1;
        if (warp_column() == 0 && first_of_row()) factors[row] = factor;
      }
    return changed;
  }

  // Leaves what the sums are to be multiplied with in `factors`, and writes `log_sum_exp`, unless
  // null, of rows < count.
  __device__ void finish(float* shared, float* factors, float* log_sum_exp, int64_t stride,
                         int count) const {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float total = sum[m][h];
        total += __shfl_xor_sync(kFullWarp, total, 1);
        total += __shfl_xor_sync(kFullWarp, total, 2);
        if (first_of_row())
          shared[warp_column() * kRowTile + Layout::row() + 16 * m + 8 * h] = total;
      }
    __syncthreads();
    if (warp_column() == 0 && first_of_row())
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = Layout::row() + 16 * m + 8 * h;
          float total = 0;
          for (int i = 0; i < Layout::kColumns; ++i) total += shared[i * kRowTile + row];
          factors[row] = total == 0 ? 0 : 1 / total;
          if (log_sum_exp && row < count)
            log_sum_exp[row * stride] =
                total == 0 ? -INFINITY : kLn2 * (maximum[m][h] + log2f(total));
        }
    __syncthreads();
  }
};

template <int kRowTile, int kChunk>
__device__ __forceinline__ void multiply_rows(Sums<kRowTile, kChunk>& sums, const float* factors) {
  using Layout = SumLayout<kRowTile, kChunk>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int m = 0; m < Layout::kRowBlocks; ++m) {
    const int row = (warp / Layout::kColumns * Layout::kRowBlocks + m) * 16 + lane / 4;
    const float upper = factors[row], lower = factors[row + 8];
#pragma unroll
    for (int n = 0; n < Layout::kColumnBlocks; ++n) {
      sums[m][n][0] *= upper;
      sums[m][n][1] *= upper;
      sums[m][n][2] *= lower;
      sums[m][n][3] *= lower;
    }
  }
}

// Calls store(row, column, x, y) for all pairs of neighbouring sums.
template <int kRowTile, int kChunk, typename Store>
__device__ __forceinline__ void for_sums(const Sums<kRowTile, kChunk>& sums, Store store) {
  using Layout = SumLayout<kRowTile, kChunk>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int m = 0; m < Layout::kRowBlocks; ++m)
#pragma unroll
    for (int n = 0; n < Layout::kColumnBlocks; ++n) {
      const int row = (warp / Layout::kColumns * Layout::kRowBlocks + m) * 16 + lane / 4;
      const int column = (warp % Layout::kColumns * Layout::kColumnBlocks + n) * 8 + lane % 4 * 2;
      store(row, column, sums[m][n][0], sums[m][n][1]);
      store(row + 8, column, sums[m][n][2], sums[m][n][3]);
    }
}

template <Pass kPass, int kChunk, int kTile, typename T>
__global__ void __launch_bounds__(kAttentionThreads, kChunk <= 128 ? 2 : 1)
    attention_pass(const PassArguments<T> a) {
#if __CUDA_ARCH__ >= 800
  constexpr bool kQueries = rows_are_queries(kPass), kSecond = has_second_product(kPass);
  constexpr int kRowTile = kRowsFor<kPass, kChunk>;
  using Layout = ScoreLayout<kRowTile, kTile>;
  extern __shared__ __align__(16) unsigned char memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  const AttentionShape& s = a.shape;
  const int d = static_cast<int>(s.dim), e = static_cast<int>(s.value_dim);
  const PassLayout<kPass, kChunk, kTile> at(d, e);
  float* const maxima = reinterpret_cast<float*>(shared + at.floats);
  float* const factors = maxima + Layout::kColumns * kRowTile;
  const PassWork w = pass_work<kPass, kRowTile, kTile>(a);
  const int chunk_start = w.chunk * kChunk;
  const int x_stride = kSecond ? at.first_width + kRowPad : kChunk + kRowPad;
  const int first_row = Layout::row(), first_column = Layout::column();

  const auto load_first = [&](unsigned tile) {
    const OtherTile<T> t = other_tile<kPass, kTile>(a, w, tile);
    load_rows(shared + at.other1, at.first_width, t.first, d, kTile, t.count, d);
  };
  // Of passes with a second product, its factor; else X, into one of two places in turn.
  const auto load_second = [&](unsigned tile) {
    const OtherTile<T> t = other_tile<kPass, kTile>(a, w, tile);
    if constexpr (kSecond)
      load_rows(shared + at.other2, at.value_dim, t.second, e, kTile, t.count, e);
    else
      load_rows(shared + at.x + tile % 2 * kTile * (kChunk + kRowPad), kChunk,
                t.second + chunk_start, e, kTile, t.count, e - chunk_start);
  };

  const int64_t row_of_head =
      kQueries ? (w.item * s.heads + w.head) * s.queries : (w.item * s.kv_heads + w.head) * s.keys;
  const int64_t row0 = row_of_head + w.first;
  const int valid_rows = static_cast<int>(min(static_cast<int64_t>(kRowTile), w.rows - w.first));
  Sums<kRowTile, kChunk> sums;
#pragma unroll
  for (int m = 0; m < SumLayout<kRowTile, kChunk>::kRowBlocks; ++m)
#pragma unroll
    for (int n = 0; n < SumLayout<kRowTile, kChunk>::kColumnBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
  OnlineSoftmax<kRowTile, kTile> softmax;
  float row_lse[2][2], row_delta[2][2];
  if (w.tile < w.last_tile) {
    load_rows(shared + at.row1, at.dim, (kQueries ? a.query : a.key) + row0 * d, d, kRowTile,
              valid_rows, d);
    if constexpr (kSecond)
      load_rows(shared + at.row2, at.value_dim, (kQueries ? a.grad_output : a.value) + row0 * e, e,
                kRowTile, valid_rows, e);
    load_second(w.tile);
    commit_copies();
    load_first(w.tile);
    commit_copies();
    if constexpr (kPass == Pass::query)
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = first_row + 16 * m + 8 * h;
          row_lse[m][h] = row < valid_rows ? kLog2E * a.log_sum_exp[row0 + row] : 0;
          row_delta[m][h] = row < valid_rows ? a.delta[row0 + row] : 0;
        }
  }

  for (unsigned tile = w.tile; tile < w.last_tile; ++tile) {
    const OtherTile<T> t = other_tile<kPass, kTile>(a, w, tile);
    Scores<kRowTile, kTile> scores, grads;
    if constexpr (kSecond) {
      wait_copies<1>();
      __syncthreads();
      row_product<kRowTile, kTile>(grads, shared + at.row2, at.value_dim + kRowPad,
                                   shared + at.other2, at.value_dim + kRowPad, at.value_dim / 16);
    }
    wait_copies<0>();
    __syncthreads();
    if constexpr (!kSecond) {
      if (tile + 1 < w.last_tile) load_second(tile + 1);
      commit_copies();
    }
    float column_lse[Layout::kBlocks][2], column_delta[Layout::kBlocks][2];
    if constexpr (!kQueries)
#pragma unroll
      for (int n = 0; n < Layout::kBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = first_column + 8 * n + i;
          const bool exists = column < t.count;
          column_lse[n][i] = exists ? kLog2E * a.log_sum_exp[t.query_row + column] : 0;
          if constexpr (kSecond) column_delta[n][i] = exists ? a.delta[t.query_row + column] : 0;
        }
    row_product<kRowTile, kTile>(scores, shared + at.row1, at.dim + kRowPad, shared + at.other1,
                                 at.first_width + kRowPad, at.dim / 16);

    const int64_t query = kQueries ? w.first : t.start, key = kQueries ? t.start : w.first;
    const bool masked = needs_mask(a.mask, w.length, s.queries, query, kQueries ? kRowTile : kTile,
                                   key, kQueries ? kTile : kRowTile);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < Layout::kBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& score = scores[m][n][i];
          score *= a.scale * kLog2E;
          if (!masked) continue;
          const int row = first_row + 16 * m + i / 2 * 8;
          const int column = first_column + 8 * n + i % 2;
          if (!sees(a.mask, w.length, s.queries, query + (kQueries ? row : column),
                    key + (kQueries ? column : row)))
            score = -INFINITY;
        }

    bool changed = false;
    if constexpr (kPass == Pass::output) {
      softmax.share_maxima(scores, maxima);
      __syncthreads();
      changed = softmax.take(scores, maxima, factors);
    } else {
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < Layout::kBlocks; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& score = scores[m][n][i];
            const float lse = kQueries ? row_lse[m][i / 2] : column_lse[n][i % 2];
            // A query without keys has -inf on both sides.
            const float weight = score == -INFINITY ? 0 : exp2f(score - lse);
            score = weight;
            if constexpr (kSecond) {
              const float delta = kQueries ? row_delta[m][i / 2] : column_delta[n][i % 2];
              score = weight == 0 ? 0 : weight * (grads[m][n][i] - delta);
            }
          }
    }
    T* const weights = shared + at.weights;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < Layout::kBlocks; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = first_row + 16 * m + 8 * h;
          const int column = first_column + 8 * n;
          store_pair(weights + row * (kTile + kRowPad) + column, scores[m][n][2 * h],
                     scores[m][n][2 * h + 1]);
        }
    if constexpr (kPass == Pass::output) {
      if (__syncthreads_or(changed)) multiply_rows<kRowTile, kChunk>(sums, factors);
    } else {
      __syncthreads();
    }
    // The factors of the products have been read by all.
    if (tile + 1 < w.last_tile) {
      if constexpr (kSecond)
        load_second(tile + 1);
      else
        load_first(tile + 1);
    }
    commit_copies();
    const T* const x = kSecond ? shared + at.other1 + chunk_start
                               : shared + at.x + tile % 2 * kTile * (kChunk + kRowPad);
    add_product<kRowTile, kChunk, kTile>(sums, weights, x, x_stride);
    if constexpr (kSecond) {
      __syncthreads();  // X has been read by all
      if (tile + 1 < w.last_tile) load_first(tile + 1);
      commit_copies();
    }
  }

  const int width = kSecond ? d : e, columns = width - chunk_start;
  const bool in_parts = a.splits > 1;
  const int part_width = kPass == Pass::output ? width + 1 : width;
  const int64_t all_rows = s.batch * (kQueries ? s.heads * s.queries : s.kv_heads * s.keys);
  float* const part = a.parts + (w.split * all_rows + row0) * part_width;
  if constexpr (kPass == Pass::output) {
    __syncthreads();
    float* const lse = w.chunk != 0 ? nullptr : in_parts ? part + e : a.log_sum_exp + row0;
    softmax.finish(maxima, factors, lse, in_parts ? part_width : 1, valid_rows);
    multiply_rows<kRowTile, kChunk>(sums, factors);
  }
  if (in_parts) {
    for_sums<kRowTile, kChunk>(sums, [&](int row, int column, float x, float y) {
      if (row >= valid_rows || column >= columns) return;
      float* to = part + static_cast<int64_t>(row) * part_width + chunk_start + column;
      to[0] = x;
      to[1] = y;
    });
    return;
  }
  const float scale = kSecond ? a.scale : 1.0f;
  for_sums<kRowTile, kChunk>(sums, [&](int row, int column, float x, float y) {
    if (row < valid_rows && column < columns)
      store_pair(a.result + (row0 + row) * width + chunk_start + column, scale * x, scale * y);
  });
#endif
}

}  // namespace gsslam
