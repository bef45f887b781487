// Attention of one tile of queries or keys, one set of functions for each instruction set.
#pragma once

#include <cstddef>

#include "attention/attention.h"
#include "common/isa.h"

namespace gsslam {

// Queries and keys are taken by tiles of this many; also the tokens of a page of the paged store.
inline constexpr int64_t kTokenTile = 64;

// Keys or values of one head of one batch item: rows of `dim` floats, in one piece or in pages of
// kTokenTile rows.
struct TokenRows {
  const float* rows;     // the first row, or the first row of page 0
  const int32_t* table;  // pages in order, or null
  int64_t page_stride;   // floats between two pages
  int64_t dim;

  // The rows from `first` on, first a multiple of kTokenTile; kTokenTile of them lie together.
  const float* at(int64_t first) const {
    return table ? rows + table[first / kTokenTile] * page_stride : rows + first * dim;
  }
};

struct AttentionHead {
  const float *query, *grad_output;  // (queries, dim), (queries, value_dim)
  TokenRows key, value;
  const float *log_sum_exp, *delta;  // (queries)
  int64_t queries, length;           // length: keys that count
  int64_t dim, value_dim;
  float scale;
  AttentionMask mask;
};

// Floats of scratch memory that any of the functions needs.
size_t attention_scratch_size(int64_t dim, int64_t value_dim);

#define GSSLAM_DECLARE(isa)                                                                    \
  namespace isa {                                                                              \
  /* Output and log-sum-exp of the tile of queries that starts at `first`. */                  \
  void attention_forward_tile(const AttentionHead& head, int64_t first, float* output,         \
                              float* log_sum_exp, float* scratch);                             \
  /* sum(output * grad_output) - grad_log_sum_exp (null: 0), for `count` queries. */           \
  void attention_delta(const float* output, const float* grad_output, const float* grad_lse,   \
                       int64_t count, int64_t value_dim, float* delta);                        \
  /* Gradient of the queries of a tile. */                                                     \
  void attention_query_tile(const AttentionHead& head, int64_t first, float* grad_query,       \
                            float* scratch);                                                   \
  /* Gradients of the keys and values of a tile, summed over the heads of a group in order. */ \
  void attention_key_tile(const AttentionHead* heads, int64_t group, int64_t first,            \
                          float* grad_key, float* grad_value, float* scratch);                 \
  }
GSSLAM_FOR_EACH_ISA(GSSLAM_DECLARE)
#undef GSSLAM_DECLARE

}  // namespace gsslam
