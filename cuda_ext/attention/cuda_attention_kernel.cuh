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
                                                   int64_t tile) {
  const AttentionShape& s = a.shape;
  OtherTile<T> t{};
  t.start = w.begin + tile % w.per_head * kTile;
  t.count = min(static_cast<int64_t>(kTile), w.end - t.start);
  if constexpr (rows_are_queries(kPass)) {
    const int64_t row = (w.item * s.kv_heads + w.head / s.group()) * s.keys + t.start;
    t.first = a.key + row * s.dim;
    t.second = a.value + row * s.value_dim;
  } else {
    const int64_t head = w.head * s.group() + tile / w.per_head;
    t.query_row = (w.item * s.heads + head) * s.queries + t.start;
    t.first = a.query + t.query_row * s.dim;
    t.second = a.grad_output + t.query_row * s.value_dim;
  }
  return t;
}

// Softmax of a block's rows as their scores come by; a thread has four rows' worth of columns.
struct OnlineSoftmax {
  float maximum[2][2], sum[2][2];

  __device__ OnlineSoftmax() {
    for (int m = 0; m < 2; ++m)
      for (int h = 0; h < 2; ++h) {
        maximum[m][h] = -INFINITY;
        sum[m][h] = 0;
      }
  }

  // Largest score of every row in this warp's columns, for all warps to see.
  template <int kTile>
  __device__ void share_maxima(const Scores<kTile>& s, float* shared) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < kTile / 32; ++n)
          most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
        most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
        if (lane % 4 == 0)
          shared[warp % 4 * kRowTile + warp / 4 * 32 + m * 16 + h * 8 + lane / 4] = most;
      }
  }

  // Turns scores into weights; returns whether sums so far must be multiplied with `factors`.
  template <int kTile>
  __device__ bool take(Scores<kTile>& s, const float* shared, float* factors) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool changed = false;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp / 4 * 32 + m * 16 + h * 8 + lane / 4;
        float most = maximum[m][h];
#pragma unroll
        for (int i = 0; i < 4; ++i) most = fmaxf(most, shared[i * kRowTile + row]);
        const float reference = most == -INFINITY ? 0 : most;
        const float factor = exp2f(maximum[m][h] - reference);
        float total = 0;
#pragma unroll
        for (int n = 0; n < kTile / 32; ++n)
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            s[m][n][e] = exp2f(s[m][n][e] - reference);
            total += s[m][n][e];
          }
        sum[m][h] = sum[m][h] * factor + total;
        maximum[m][h] = most;
        changed |= factor != 1;
        if (warp % 4 == 0 && lane % 4 == 0) factors[row] = factor;
      }
    return changed;
  }

  // Leaves what the sums are to be divided by in `factors`, and in `log_sum_exp` for rows < count.
  __device__ void finish(float* shared, float* factors, float* log_sum_exp, int64_t stride,
                         int64_t count) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float total = sum[m][h];
        total += __shfl_xor_sync(kFullWarp, total, 1);
        total += __shfl_xor_sync(kFullWarp, total, 2);
        if (lane % 4 == 0)
          shared[warp % 4 * kRowTile + warp / 4 * 32 + m * 16 + h * 8 + lane / 4] = total;
      }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp / 4 * 32 + m * 16 + h * 8 + lane / 4;
        if (warp % 4 != 0 || lane % 4 != 0) continue;
        float total = 0;
        for (int i = 0; i < 4; ++i) total += shared[i * kRowTile + row];
        factors[row] = total == 0 ? 0 : 1 / total;
        if (log_sum_exp && row < count)
          log_sum_exp[row * stride] =
              total == 0 ? -INFINITY : kLn2 * (maximum[m][h] + log2f(total));
      }
    __syncthreads();
  }
};

template <int kChunk>
__device__ __forceinline__ void multiply_rows(Sums<kChunk>& sums, const float* factors) {
  using Layout = SumLayout<kChunk>;
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
template <int kChunk, typename Store>
__device__ __forceinline__ void for_sums(const Sums<kChunk>& sums, Store store) {
  using Layout = SumLayout<kChunk>;
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
  extern __shared__ __align__(16) unsigned char memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  const AttentionShape& s = a.shape;
  const int d = static_cast<int>(s.dim), e = static_cast<int>(s.value_dim);
  const PassLayout<kPass, kChunk, kTile> at(d, e);
  float* const maxima = reinterpret_cast<float*>(shared + at.floats);
  float* const factors = maxima + 4 * kRowTile;
  const PassWork w = pass_work<kPass, kTile>(a);
  const int chunk_start = w.chunk * kChunk;
  const int x_stride = kSecond ? at.first_width + kRowPad : kChunk + kRowPad;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  const auto load_first = [&](int64_t tile) {
    const OtherTile<T> t = other_tile<kPass, kTile>(a, w, tile);
    load_rows(shared + at.other1, at.first_width, t.first, d, kTile, t.count, d);
  };
  // Of passes with a second product, its factor; else X, into one of two places in turn.
  const auto load_second = [&](int64_t tile) {
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
  Sums<kChunk> sums;
#pragma unroll
  for (int m = 0; m < SumLayout<kChunk>::kRowBlocks; ++m)
#pragma unroll
    for (int n = 0; n < SumLayout<kChunk>::kColumnBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
  OnlineSoftmax softmax;
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
          const int row = warp / 4 * 32 + m * 16 + h * 8 + lane / 4;
          row_lse[m][h] = row < valid_rows ? kLog2E * a.log_sum_exp[row0 + row] : 0;
          row_delta[m][h] = row < valid_rows ? a.delta[row0 + row] : 0;
        }
  }

  for (int64_t tile = w.tile; tile < w.last_tile; ++tile) {
    const OtherTile<T> t = other_tile<kPass, kTile>(a, w, tile);
    Scores<kTile> scores, grads;
    if constexpr (kSecond) {
      wait_copies<1>();
      __syncthreads();
      row_product<kTile>(grads, shared + at.row2, at.value_dim + kRowPad, shared + at.other2,
                         at.value_dim + kRowPad, at.value_dim / 16);
    }
    wait_copies<0>();
    __syncthreads();
    if constexpr (!kSecond) {
      if (tile + 1 < w.last_tile) load_second(tile + 1);
      commit_copies();
    }
    float column_lse[kTile / 32][2], column_delta[kTile / 32][2];
    if constexpr (!kQueries)
#pragma unroll
      for (int n = 0; n < kTile / 32; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = warp % 4 * (kTile / 4) + n * 8 + lane % 4 * 2 + i;
          const bool exists = column < t.count;
          column_lse[n][i] = exists ? kLog2E * a.log_sum_exp[t.query_row + column] : 0;
          if constexpr (kSecond) column_delta[n][i] = exists ? a.delta[t.query_row + column] : 0;
        }
    row_product<kTile>(scores, shared + at.row1, at.dim + kRowPad, shared + at.other1,
                       at.first_width + kRowPad, at.dim / 16);

    const int64_t query = kQueries ? w.first : t.start, key = kQueries ? t.start : w.first;
    const bool masked = needs_mask(a.mask, w.length, s.queries, query, kQueries ? kRowTile : kTile,
                                   key, kQueries ? kTile : kRowTile);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < kTile / 32; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& score = scores[m][n][i];
          score *= a.scale * kLog2E;
          if (!masked) continue;
          const int row = warp / 4 * 32 + m * 16 + i / 2 * 8 + lane / 4;
          const int column = warp % 4 * (kTile / 4) + n * 8 + lane % 4 * 2 + i % 2;
          if (!sees(a.mask, w.length, s.queries, query + (kQueries ? row : column),
                    key + (kQueries ? column : row)))
            score = -INFINITY;
        }

    bool changed = false;
    if constexpr (kPass == Pass::output) {
      softmax.template share_maxima<kTile>(scores, maxima);
      __syncthreads();
      changed = softmax.template take<kTile>(scores, maxima, factors);
    } else {
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < kTile / 32; ++n)
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
      for (int n = 0; n < kTile / 32; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp / 4 * 32 + m * 16 + h * 8 + lane / 4;
          const int column = warp % 4 * (kTile / 4) + n * 8 + lane % 4 * 2;
          store_pair(weights + row * (kTile + kRowPad) + column, scores[m][n][2 * h],
                     scores[m][n][2 * h + 1]);
        }
    if constexpr (kPass == Pass::output) {
      if (__syncthreads_or(changed)) multiply_rows<kChunk>(sums, factors);
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
    add_product<kChunk, kTile>(sums, weights, x, x_stride);
    if constexpr (kSecond) {
      __syncthreads();  // X has been read by all
      if (tile + 1 < w.last_tile) load_first(tile + 1);
      commit_copies();
    }
  }

  const int columns = (kSecond ? d : e) - chunk_start;
  if constexpr (kPass == Pass::output) {
    __syncthreads();
    const bool in_parts = a.splits > 1;
    const int64_t all_rows = s.batch * s.heads * s.queries;
    float* const part = a.parts + (w.split * all_rows + row0) * (e + 1);
    float* const lse = w.chunk != 0 ? nullptr : in_parts ? part + e : a.log_sum_exp + row0;
    softmax.finish(maxima, factors, lse, in_parts ? e + 1 : 1, valid_rows);
    multiply_rows<kChunk>(sums, factors);
    if (in_parts) {
      for_sums<kChunk>(sums, [&](int row, int column, float x, float y) {
        if (row >= valid_rows || column >= columns) return;
        float* to = part + static_cast<int64_t>(row) * (e + 1) + chunk_start + column;
        to[0] = x;
        to[1] = y;
      });
      return;
    }
  }
  const int width = kSecond ? d : e;
  const float scale = kSecond ? a.scale : 1.0f;
  for_sums<kChunk>(sums, [&](int row, int column, float x, float y) {
    if (row < valid_rows && column < columns)
      store_pair(a.result + (row0 + row) * width + chunk_start + column, scale * x, scale * y);
  });
#endif
}

}  // namespace gsslam
