// Attention on the CPU. All tensors are contiguous; the same bytes for any number of threads.
#pragma once

#include "attention/attention.h"

namespace gsslam {

// Keys and values (batch, kv_heads, keys, dims); or, with a table (batch, table_pages) of page
// numbers, pages (pages, kv_heads, kTokenTile, dims), where key lengths say how much of it counts.
struct KeyValue {
  const float *key, *value;
  const int32_t* table;
  int64_t table_pages;
};

struct AttentionInput {
  AttentionShape shape;
  AttentionMask mask;
  float scale;
  const float* query;  // (batch, heads, queries, dim)
  KeyValue tokens;
};

// Writes the output (batch, heads, queries, value_dim) and the log-sum-exp (batch, heads, queries)
// of the scaled scores.
void attention_forward(const AttentionInput& input, float* output, float* log_sum_exp);

struct AttentionGradients {
  const float *output, *log_sum_exp;            // what the forward pass gave
  const float *grad_output, *grad_log_sum_exp;  // the latter may be null
  float* delta;                                 // (batch, heads, queries), for the pass's own use
  float *grad_query, *grad_key, *grad_value;
};

// Writes the gradients; not for paged tokens.
void attention_backward(const AttentionInput& input, const AttentionGradients& gradients);

}  // namespace gsslam
