// Attention of one tile, with the softmax of a row made as its keys come by (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Dao et al.,
// "FlashAttention", 2022, algorithms 1 and 4). Lanes are the tile's own rows, so that no sum or
// maximum ever crosses lanes.
#define GSSLAM_WIDE
#include "attention/cpu_attention_tile.h"

#include "attention/cpu_products.h"

namespace gsslam::GSSLAM_ISA {
namespace {

constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;
constexpr float kInfinity = __builtin_inff();

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t padded(int64_t columns) { return panels(columns) * kPanel; }

// 2^x for x <= 0 that is 0 under -126, minus infinity among them, and lets a NaN through.
vfloat exp2_or_nan(vfloat x) {
  const vfloat power = x < -126.0f ? vfloat{} : exp2_nonpositive(x);
  return x == x ? power : x;
}

// Keeps the lanes where the query sees the key; position = key - query - offset.
vint seen(const AttentionMask& mask, vfloat position) {
  vint in = position == position;
  if (mask.left >= 0) in &= position >= -static_cast<float>(mask.left);
  if (mask.right >= 0) in &= position <= static_cast<float>(mask.right);
  return in;
}

// Whether all of the queries see all of the keys.
bool all_seen(const AttentionMask& mask, int64_t query, int64_t queries, int64_t key,
              int64_t keys) {
  const int64_t nearest = key - (query + queries - 1) - mask.offset;
  const int64_t farthest = key + keys - 1 - query - mask.offset;
  return (mask.left < 0 || nearest >= -mask.left) && (mask.right < 0 || farthest <= mask.right);
}

// Floats of the parts of the scratch memory; every part starts at a multiple of a vector.
struct Scratch {
  float *panels, *grad_panels;  // the tile's rows and their gradients, transposed
  float *scores, *grad_scores;  // (kTokenTile, kTokenTile)
  float *sums, *grad_sums;      // (kTokenTile, padded columns)
  float* strip;                 // (kTokenTile, kPanel)

  Scratch(float* memory, int64_t dim, int64_t value_dim) {
    panels = memory;
    grad_panels = panels + kTokenTile * dim;
    scores = grad_panels + kTokenTile * value_dim;
    grad_scores = scores + kTokenTile * kTokenTile;
    sums = grad_scores + kTokenTile * kTokenTile;
    grad_sums = sums + kTokenTile * padded(value_dim);
    strip = grad_sums + kTokenTile * padded(dim);
  }
};

void clear(float* p, int64_t count) { std::memset(p, 0, sizeof(float) * count); }

// Copies `count` rows times a factor for each out of padded sums.
void copy_rows(const float* sums, int64_t count, int64_t columns, const float* factors,
               float* rows) {
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < columns; c += kLanes)
      store_first(rows + r * columns + c, factors[r] * load(sums + r * padded(columns) + c),
                  columns - c);
}

// Running maximum (of scores in powers of two) and sum of a tile's queries.
struct Softmax {
  float maximum[kTokenTile], sum[kTokenTile], factor[kTokenTile];
};

// Turns scores into weights against the running maximum, in place, and updates maximum and sum;
// `factor` is what all sums so far have to be multiplied with. Returns whether any is not 1.
bool take_scores(const AttentionHead& head, int64_t first_query, int64_t first_key, int64_t keys,
                 bool masked, int64_t width, float* scores, Softmax& softmax) {
  bool changed = false;
  for (int64_t lane = 0; lane < width; lane += kLanes) {
    const vfloat before = load(softmax.maximum + lane);
    vfloat maximum = before;
    const vfloat query =
        lane_index() + static_cast<float>(first_query + lane + head.mask.offset - first_key);
    for (int64_t j = 0; j < keys; ++j) {
      float* at = scores + j * kTokenTile + lane;
      vfloat score = load(at);
      if (masked) {
        score = seen(head.mask, static_cast<float>(j) - query) ? score : splat(-kInfinity);
        store(at, score);
      }
      maximum = max(score, maximum);
    }
    const vfloat reference = maximum > -kInfinity ? maximum : vfloat{};
    const vfloat factor = exp2_or_nan(before - reference);
    vfloat sum = factor * load(softmax.sum + lane);
    for (int64_t j = 0; j < keys; ++j) {
      float* at = scores + j * kTokenTile + lane;
      const vfloat weight = exp2_or_nan(load(at) - reference);
      sum += weight;
      store(at, weight);
    }
    store(softmax.maximum + lane, maximum);
    store(softmax.sum + lane, sum);
    store(softmax.factor + lane, factor);
    changed |= any(factor != 1.0f);
  }
  return changed;
}

void rescale(float* sums, int64_t rows, int64_t stride, const float* factors) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < stride; c += kLanes)
      store(sums + r * stride + c, factors[r] * load(sums + r * stride + c));
}

}  // namespace

void attention_forward_tile(const AttentionHead& head, int64_t first, float* output,
                            float* log_sum_exp, float* memory) {
  const Scratch scratch(memory, head.dim, head.value_dim);
  const int64_t count = smaller(kTokenTile, head.queries - first), width = padded(count);
  transpose_panels(head.query + first * head.dim, count, head.dim, head.scale * kLog2E, width,
                   scratch.panels);
  clear(scratch.sums, count * padded(head.value_dim));
  Softmax softmax;
  for (int64_t i = 0; i < kTokenTile; ++i) {
    softmax.maximum[i] = -kInfinity;
    softmax.sum[i] = 0;
  }
  const KeyRange range = visible_keys(head.mask, head.length, first, first + count - 1);
  for (int64_t key = range.begin / kTokenTile * kTokenTile; key < range.end; key += kTokenTile) {
    const int64_t keys = smaller(kTokenTile, range.end - key);
    multiply(head.key.at(key), keys, head.dim, scratch.panels, width, scratch.scores, kTokenTile);
    const bool masked = !all_seen(head.mask, first, count, key, keys);
    if (take_scores(head, first, key, keys, masked, width, scratch.scores, softmax))
      rescale(scratch.sums, count, padded(head.value_dim), softmax.factor);
    accumulate(scratch.scores, kTokenTile, count, head.value.at(key), keys, head.value_dim,
               scratch.strip, scratch.sums);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float sum = softmax.sum[i];
    softmax.factor[i] = sum == 0 ? 0 : 1 / sum;
    log_sum_exp[first + i] =
        sum == 0 ? -kInfinity : kLn2 * (softmax.maximum[i] + __builtin_log2f(sum));
  }
  copy_rows(scratch.sums, count, head.value_dim, softmax.factor, output + first * head.value_dim);
}

void attention_delta(const float* output, const float* grad_output, const float* grad_lse,
                     int64_t count, int64_t value_dim, float* delta) {
  for (int64_t i = 0; i < count; ++i) {
    vfloat total{};
    for (int64_t c = 0; c < value_dim; c += kLanes)
      total += load_first(output + i * value_dim + c, value_dim - c) *
               load_first(grad_output + i * value_dim + c, value_dim - c);
    delta[i] = sum(total) - (grad_lse ? grad_lse[i] : 0);
  }
}

namespace {

// Weights out of scores and gradients of scores out of gradients of weights, both in place.
// `rows` are rows of the other side; lanes are the tile's rows.
template <typename LogSumExp, typename Delta, typename Seen>
void differentiate(int64_t rows, int64_t width, float* scores, float* grad_scores,
                   LogSumExp log_sum_exp, Delta delta, Seen seen_lanes) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t lane = 0; lane < width; lane += kLanes) {
      float *at = scores + r * kTokenTile + lane, *grad_at = grad_scores + r * kTokenTile + lane;
      const vint kept = seen_lanes(r, lane);
      const vfloat exponent = load(at) - log_sum_exp(r, lane);
      const vfloat weight = kept ? exp2_or_nan(exponent) : vfloat{};
      const vfloat grad = weight * (load(grad_at) - delta(r, lane));
      store(at, weight);
      store(grad_at, kept ? grad : vfloat{});
    }
}

// The log-sum-exp in powers of two. Where there is nothing to see, every weight must come out as 0:
// such a row's finite scores minus infinity.
float weight_reference(float log_sum_exp) {
  return log_sum_exp == -kInfinity ? kInfinity : log_sum_exp * kLog2E;
}

}  // namespace

void attention_query_tile(const AttentionHead& head, int64_t first, float* grad_query,
                          float* memory) {
  const Scratch scratch(memory, head.dim, head.value_dim);
  const int64_t count = smaller(kTokenTile, head.queries - first), width = padded(count);
  transpose_panels(head.query + first * head.dim, count, head.dim, head.scale * kLog2E, width,
                   scratch.panels);
  transpose_panels(head.grad_output + first * head.value_dim, count, head.value_dim, 1, width,
                   scratch.grad_panels);
  clear(scratch.grad_sums, count * padded(head.dim));
  float reference[kTokenTile] = {}, delta[kTokenTile] = {}, scale[kTokenTile];
  for (int64_t i = 0; i < count; ++i) {
    reference[i] = weight_reference(head.log_sum_exp[first + i]);
    delta[i] = head.delta[first + i];
  }
  for (float& s : scale) s = head.scale;
  const KeyRange range = visible_keys(head.mask, head.length, first, first + count - 1);
  for (int64_t key = range.begin / kTokenTile * kTokenTile; key < range.end; key += kTokenTile) {
    const int64_t keys = smaller(kTokenTile, range.end - key);
    multiply(head.key.at(key), keys, head.dim, scratch.panels, width, scratch.scores, kTokenTile);
    multiply(head.value.at(key), keys, head.value_dim, scratch.grad_panels, width,
             scratch.grad_scores, kTokenTile);
    const float query = static_cast<float>(first + head.mask.offset - key);
    differentiate(
        keys, width, scratch.scores, scratch.grad_scores,
        [&](int64_t, int64_t lane) { return load(reference + lane); },
        [&](int64_t, int64_t lane) { return load(delta + lane); },
        [&](int64_t j, int64_t lane) {
          return seen(head.mask, static_cast<float>(j - lane) - (query + lane_index()));
        });
    accumulate(scratch.grad_scores, kTokenTile, count, head.key.at(key), keys, head.dim,
               scratch.strip, scratch.grad_sums);
  }
  copy_rows(scratch.grad_sums, count, head.dim, scale, grad_query + first * head.dim);
}

void attention_key_tile(const AttentionHead* heads, int64_t group, int64_t first, float* grad_key,
                        float* grad_value, float* memory) {
  const AttentionHead& any_head = heads[0];
  const int64_t dim = any_head.dim, value_dim = any_head.value_dim;
  const Scratch scratch(memory, dim, value_dim);
  const int64_t count = smaller(kTokenTile, any_head.length - first), width = padded(count);
  transpose_panels(any_head.key.at(first), count, dim, any_head.scale * kLog2E, width,
                   scratch.panels);
  transpose_panels(any_head.value.at(first), count, value_dim, 1, width, scratch.grad_panels);
  clear(scratch.sums, count * padded(value_dim));
  clear(scratch.grad_sums, count * padded(dim));
  const KeyRange range = seeing_queries(any_head.mask, any_head.queries, first, first + count - 1);
  for (int64_t h = 0; h < group; ++h) {
    const AttentionHead& head = heads[h];
    for (int64_t query = range.begin; query < range.end; query += kTokenTile) {
      const int64_t queries = smaller(kTokenTile, range.end - query);
      const float* grad_output = head.grad_output + query * value_dim;
      multiply(head.query + query * dim, queries, dim, scratch.panels, width, scratch.scores,
               kTokenTile);
      multiply(grad_output, queries, value_dim, scratch.grad_panels, width, scratch.grad_scores,
               kTokenTile);
      const float key = static_cast<float>(first - query - head.mask.offset);
      differentiate(
          queries, width, scratch.scores, scratch.grad_scores,
          [&](int64_t i, int64_t) { return splat(weight_reference(head.log_sum_exp[query + i])); },
          [&](int64_t i, int64_t) { return splat(head.delta[query + i]); },
          [&](int64_t i, int64_t lane) {
            return seen(head.mask, key + static_cast<float>(lane - i) + lane_index());
          });
      accumulate(scratch.scores, kTokenTile, count, grad_output, queries, value_dim, scratch.strip,
                 scratch.sums);
      accumulate(scratch.grad_scores, kTokenTile, count, head.query + query * dim, queries, dim,
                 scratch.strip, scratch.grad_sums);
    }
  }
  float scale[kTokenTile], one[kTokenTile];
  for (int64_t i = 0; i < kTokenTile; ++i) {
    scale[i] = any_head.scale;
    one[i] = 1;
  }
  copy_rows(scratch.sums, count, value_dim, one, grad_value + first * value_dim);
  copy_rows(scratch.grad_sums, count, dim, scale, grad_key + first * dim);
}

}  // namespace gsslam::GSSLAM_ISA
