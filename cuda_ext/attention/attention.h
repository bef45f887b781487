// What attention computes, for the CPU and CUDA kernels; gsslam/attention/reference.py specifies
// it.
#pragma once

#include <cstdint>

namespace gsslam {

// Query head h reads key and value head h / (heads / kv_heads).
struct AttentionShape {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;

  constexpr int64_t group() const { return heads / kv_heads; }
};

// Query i stands at key position i + offset. It sees `left` keys before and `right` keys after that
// position, without a limit where they are negative, and none beyond the length of its batch item.
struct AttentionMask {
  int64_t left, right, offset;
  const int32_t* key_lengths;  // (batch), or null where every key counts

  constexpr int64_t length(int64_t item, int64_t keys) const {
    if (!key_lengths) return keys;
    const int64_t length = key_lengths[item];
    return length < 0 ? 0 : length < keys ? length : keys;
  }
};

// Keys [begin, end) that a query, or any of some queries, sees; empty where end <= begin.
struct KeyRange {
  int64_t begin, end;
};

// Keys that queries [first, last] see. Both ends of the range grow with the query, so the two
// outer queries bound it.
constexpr KeyRange visible_keys(const AttentionMask& mask, int64_t length, int64_t first,
                                int64_t last) {
  KeyRange range{0, length};
  const int64_t begin = first + mask.offset - mask.left;
  const int64_t end = last + mask.offset + mask.right + 1;
  if (mask.left >= 0 && begin > range.begin) range.begin = begin;
  if (mask.right >= 0 && end < range.end) range.end = end;
  return range;
}

// Queries [begin, end) that see any of the keys [first, last].
constexpr KeyRange seeing_queries(const AttentionMask& mask, int64_t queries, int64_t first,
                                  int64_t last) {
  KeyRange range{0, queries};
  const int64_t begin = first - mask.offset - mask.right;
  const int64_t end = last - mask.offset + mask.left + 1;
  if (mask.right >= 0 && begin > range.begin) range.begin = begin;
  if (mask.left >= 0 && end < range.end) range.end = end;
  return range;
}

}  // namespace gsslam
