#include "attention/cpu_attention.h"

#include <algorithm>
#include <vector>

#include "attention/cpu_attention_tile.h"
#include "common/thread_pool.h"

namespace gsslam {
namespace {

// Kept from tile to tile, so that in steady state nothing is allocated.
float* thread_scratch(const AttentionShape& shape) {
  thread_local std::vector<float> scratch;
  const size_t size = attention_scratch_size(shape.dim, shape.value_dim);
  if (scratch.size() < size) scratch.resize(size);
  return scratch.data();
}

size_t tiles(int64_t tokens) { return static_cast<size_t>((tokens + kTokenTile - 1) / kTokenTile); }

TokenRows token_rows(const AttentionInput& input, const float* tokens, int64_t item,
                     int64_t kv_head, int64_t dim) {
  const AttentionShape& s = input.shape;
  if (!input.tokens.table)
    return {tokens + (item * s.kv_heads + kv_head) * s.keys * dim, nullptr, 0, dim};
  return {tokens + kv_head * kTokenTile * dim, input.tokens.table + item * input.tokens.table_pages,
          s.kv_heads * kTokenTile * dim, dim};
}

AttentionHead head_of(const AttentionInput& input, const AttentionGradients* gradients,
                      int64_t item, int64_t head) {
  const AttentionShape& s = input.shape;
  const int64_t row = (item * s.heads + head) * s.queries, kv_head = head / s.group();
  AttentionHead h{};
  h.query = input.query + row * s.dim;
  h.key = token_rows(input, input.tokens.key, item, kv_head, s.dim);
  h.value = token_rows(input, input.tokens.value, item, kv_head, s.value_dim);
  if (gradients) {
    h.grad_output = gradients->grad_output + row * s.value_dim;
    h.log_sum_exp = gradients->log_sum_exp + row;
    h.delta = gradients->delta + row;
  }
  h.queries = s.queries;
  h.length = input.mask.length(item, s.keys);
  h.dim = s.dim;
  h.value_dim = s.value_dim;
  h.scale = input.scale;
  h.mask = input.mask;
  return h;
}

// Calls body(item, head, first row of the tile) for all tiles of all heads.
template <typename Body>
void for_tiles(int64_t items, int64_t heads, int64_t rows, Body body) {
  const size_t count = tiles(rows);
  parallel_for(static_cast<size_t>(items * heads) * count, [&](size_t task) {
    const int64_t head = static_cast<int64_t>(task / count);
    body(head / heads, head % heads, static_cast<int64_t>(task % count) * kTokenTile);
  });
}

}  // namespace

size_t attention_scratch_size(int64_t dim, int64_t value_dim) {
  constexpr int64_t kWidestPanel = 64;
  return static_cast<size_t>(kTokenTile *
                             (2 * (dim + value_dim) + 2 * kTokenTile + 3 * kWidestPanel));
}

void attention_forward(const AttentionInput& input, float* output, float* log_sum_exp) {
  const AttentionShape& s = input.shape;
  const auto forward_tile = GSSLAM_DISPATCH(attention_forward_tile);
  for_tiles(s.batch, s.heads, s.queries, [&](int64_t item, int64_t head, int64_t first) {
    const int64_t row = (item * s.heads + head) * s.queries;
    forward_tile(head_of(input, nullptr, item, head), first, output + row * s.value_dim,
                 log_sum_exp + row, thread_scratch(s));
  });
}

void attention_backward(const AttentionInput& input, const AttentionGradients& g) {
  const AttentionShape& s = input.shape;
  const auto delta = GSSLAM_DISPATCH(attention_delta);
  const auto query_tile = GSSLAM_DISPATCH(attention_query_tile);
  const auto key_tile = GSSLAM_DISPATCH(attention_key_tile);
  for_tiles(s.batch, s.heads, s.queries, [&](int64_t item, int64_t head, int64_t first) {
    const int64_t row = (item * s.heads + head) * s.queries + first;
    delta(g.output + row * s.value_dim, g.grad_output + row * s.value_dim,
          g.grad_log_sum_exp ? g.grad_log_sum_exp + row : nullptr,
          std::min(kTokenTile, s.queries - first), s.value_dim, g.delta + row);
  });
  for_tiles(s.batch, s.heads, s.queries, [&](int64_t item, int64_t head, int64_t first) {
    float* grad = g.grad_query + (item * s.heads + head) * s.queries * s.dim;
    query_tile(head_of(input, &g, item, head), first, grad, thread_scratch(s));
  });
  for_tiles(s.batch, s.kv_heads, s.keys, [&](int64_t item, int64_t kv_head, int64_t first) {
    const int64_t row = (item * s.kv_heads + kv_head) * s.keys;
    float *grad_key = g.grad_key + row * s.dim, *grad_value = g.grad_value + row * s.value_dim;
    thread_local std::vector<AttentionHead> group;
    group.clear();
    for (int64_t h = 0; h < s.group(); ++h)
      group.push_back(head_of(input, &g, item, kv_head * s.group() + h));
    const int64_t end = std::min(s.keys, first + kTokenTile);
    const int64_t counted = std::clamp(group[0].length, first, end);
    std::fill(grad_key + counted * s.dim, grad_key + end * s.dim, 0.0f);
    std::fill(grad_value + counted * s.value_dim, grad_value + end * s.value_dim, 0.0f);
    if (counted > first)
      key_tile(group.data(), s.group(), first, grad_key, grad_value, thread_scratch(s));
  });
}

}  // namespace gsslam
