// A tile cut into blocks of one vector of pixels: 4 columns, as many rows as the lanes fill.
#pragma once

#include "common/vec.h"
#include "rasterize/cpu_tile.h"

namespace gsslam::GSSLAM_ISA {

inline constexpr int kBlockWidth = 4;
inline constexpr int kBlockHeight = kLanes / kBlockWidth;
inline constexpr int kBlockColumns = kTile / kBlockWidth;
inline constexpr int kBlocks = kTile * kTile / kLanes;
static_assert(kBlocks <= kMaxBlocks);

// Offsets of a block's pixels from its first one.
static inline vfloat lane_x() {
  vfloat v;
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(i % kBlockWidth);
  return v;
}
static inline vfloat lane_y() {
  vfloat v;
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(i / kBlockWidth);
  return v;
}

static inline int block_x(const TileSpheres& t, int block) {
  return t.x0 + block % kBlockColumns * kBlockWidth;
}
static inline int block_y(const TileSpheres& t, int block) {
  return t.y0 + block / kBlockColumns * kBlockHeight;
}
static inline bool block_in_image(const TileSpheres& t, int block) {
  return block_x(t, block) < t.width && block_y(t, block) < t.height;
}

// Finds the blocks of a tile that a circle reaches.
class BlockTest {
 public:
  explicit BlockTest(const TileSpheres& t) {
    for (int b = 0; b < kBlocks; ++b) {
      x0_[b / kLanes][b % kLanes] = static_cast<float>(block_x(t, b)) + 0.5f;
      y0_[b / kLanes][b % kLanes] = static_cast<float>(block_y(t, b)) + 0.5f;
      if (block_in_image(t, b)) in_image_ |= uint64_t{1} << b;
    }
  }

  // One bit for each block inside the image whose rectangle of pixel centres the circle reaches.
  uint64_t reached(const Splat& s, float radius2) const {
    uint64_t bits = 0;
    for (int g = 0; g < kGroups; ++g) {
      const vfloat left = x0_[g] - s.mx, right = -left - (kBlockWidth - 1.0f);
      const vfloat top = y0_[g] - s.my, bottom = -top - (kBlockHeight - 1.0f);
      const vfloat dx = max(max(left, right), vfloat{}), dy = max(max(top, bottom), vfloat{});
      const vint hit = dx * dx + dy * dy <= radius2;
      bits |= uint64_t{bits_of(hit)} << (g * kLanes);
    }
    return bits & in_image_;
  }

 private:
  static constexpr int kGroups = kBlocks >= kLanes ? kBlocks / kLanes : 1;
  vfloat x0_[kGroups], y0_[kGroups];
  uint64_t in_image_ = 0;
};

// Copies a block between a plane of the image and a vector; pixels outside the image read as 0.
static inline vfloat load_block(const float* plane, const TileSpheres& t, int block) {
  float v[kLanes] = {};
  const int x = block_x(t, block), y = block_y(t, block);
  for (int r = 0; r < kBlockHeight && y + r < t.height; ++r) {
    const float* row = plane + static_cast<int64_t>(y + r) * t.width + x;
    if (x + kBlockWidth <= t.width)
      std::memcpy(v + r * kBlockWidth, row, sizeof(float) * kBlockWidth);
    else
      for (int c = 0; x + c < t.width; ++c) v[r * kBlockWidth + c] = row[c];
  }
  return load(v);
}

static inline void store_block(float* plane, const TileSpheres& t, int block, vfloat value) {
  float v[kLanes];
  store(v, value);
  const int x = block_x(t, block), y = block_y(t, block);
  for (int r = 0; r < kBlockHeight && y + r < t.height; ++r) {
    float* row = plane + static_cast<int64_t>(y + r) * t.width + x;
    if (x + kBlockWidth <= t.width)
      std::memcpy(row, v + r * kBlockWidth, sizeof(float) * kBlockWidth);
    else
      for (int c = 0; x + c < t.width; ++c) row[c] = v[r * kBlockWidth + c];
  }
}

// Lists, for each of the `wanted` blocks (a bit each), the ranks of the spheres that reach it,
// nearest first. Block b's list starts at block_lists + b * count.
static inline void list_blocks(const TileSpheres& t, uint32_t* counts,
                               uint64_t wanted = ~uint64_t{0}) {
  const BlockTest test(t);
  for (int b = 0; b < kBlocks; ++b) counts[b] = 0;
  for (uint32_t i = 0; i < t.count; ++i) {
    const uint32_t rank = t.ranks[i];
    uint64_t bits = test.reached(t.splats[rank], t.radius2[rank]) & wanted;
    for (; bits; bits &= bits - 1) {
      const int b = __builtin_ctzll(bits);
      t.block_lists[static_cast<size_t>(b) * t.count + counts[b]++] = rank;
    }
  }
}

// One sphere at a block of pixels.
struct Contribution {
  vfloat dx, dy, d2;
  vfloat alpha;  // 0 where it is dropped
  vint free;     // where alpha is neither dropped nor clamped
};

static inline Contribution contribution(const Splat& s, vfloat px, vfloat py,
                                        vfloat transmittance) {
  Contribution c;
  c.dx = px - s.mx;
  c.dy = py - s.my;
  c.d2 = c.dx * c.dx + c.dy * c.dy;
  const vfloat alpha = exp2_nonpositive(c.d2 * s.k) * s.opacity;
  const vint kept = (alpha >= kMinAlpha) & (transmittance >= kMinTransmittance);
  const vint below = alpha < kMaxAlpha;
  c.alpha = (vfloat)(kept & (vint)(below ? alpha : splat(kMaxAlpha)));
  c.free = kept & below;
  return c;
}

// A block's pixels are looked at for being finished only this often.
inline constexpr uint32_t kSaturationStride = 8;

// What a list of spheres gives at a block of pixels: colour and the sums of weight x depth and
// weight.
struct Blended {
  vfloat r, g, b, depth, weight;
};

// Blends a list, nearest first. `visit(rank, weight)` may add channels of its own.
template <typename Visit>
static inline Blended blend(const TileSpheres& t, const uint32_t* list, uint32_t count, vfloat px,
                            vfloat py, Visit visit) {
  vfloat T = splat(1.0f);
  Blended sum{};
  for (uint32_t i = 0; i < count; ++i) {
    if (i % kSaturationStride == 0 && !any(T >= kMinTransmittance)) break;
    const Splat& s = t.splats[list[i]];
    const vfloat w = contribution(s, px, py, T).alpha * T;
    sum.r += w * s.r;
    sum.g += w * s.g;
    sum.b += w * s.b;
    sum.depth += w * s.z;
    sum.weight += w;
    T -= w;
    visit(list[i], w);
  }
  return sum;
}

}  // namespace gsslam::GSSLAM_ISA
