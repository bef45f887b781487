// Blending of one tile, forward and backward, on vectors of pixels.
#define GSSLAM_WIDE  // 16 lanes under AVX-512
#include "rasterize/cpu_blocks.h"

namespace gsslam::GSSLAM_ISA {
namespace {

void forward_block(const TileSpheres& t, int block, uint32_t count, float* image) {
  const size_t plane = static_cast<size_t>(t.width) * t.height;
  const uint32_t* list = t.block_lists + static_cast<size_t>(block) * t.count;
  const vfloat px = lane_x() + (static_cast<float>(block_x(t, block)) + 0.5f);
  const vfloat py = lane_y() + (static_cast<float>(block_y(t, block)) + 0.5f);
  vfloat features[kMaxFeatures];
  for (int d = 0; d < t.num_features; ++d) features[d] = vfloat{};
  const Blended sum = blend(t, list, count, px, py, [&](uint32_t rank, vfloat w) {
    const float* f = t.features + static_cast<size_t>(rank) * t.num_features;
    for (int d = 0; d < t.num_features; ++d) features[d] += w * f[d];
  });
  store_block(image + kPlaneRed * plane, t, block, sum.r);
  store_block(image + kPlaneGreen * plane, t, block, sum.g);
  store_block(image + kPlaneBlue * plane, t, block, sum.b);
  store_block(image + kPlaneDepth * plane, t, block, sum.depth);
  store_block(image + kPlaneSilhouette * plane, t, block, sum.weight);
  for (int d = 0; d < t.num_features; ++d)
    store_block(image + (kPlaneFeature + d) * plane, t, block, features[d]);
}

// A tile's pixels for the backward pass, in the order of blocks.
struct BackwardPixels {
  vfloat grad[kPlaneFeature][kBlocks];  // dL / d colour, depth, silhouette
  vfloat transmittance[kBlocks];
  vfloat rest[kBlocks];  // sum of weight x q over the spheres still to come
  vfloat error[kBlocks];
  vfloat px[kBlocks], py[kBlocks];
};

// q is what a unit of weight of a sphere is worth at a pixel: its colour, depth, 1 and features,
// each times the gradient of the plane. The pixel's total over all spheres is known from the image,
// so that going front to back needs no division to undo the blending.
void load_backward_pixels(const TileSpheres& t, const BackwardTile& back, vfloat* feature_grads,
                          BackwardPixels& pixels) {
  const size_t plane = static_cast<size_t>(t.width) * t.height;
  for (int b = 0; b < kBlocks; ++b) {
    if (!block_in_image(t, b)) continue;
    pixels.px[b] = lane_x() + (static_cast<float>(block_x(t, b)) + 0.5f);
    pixels.py[b] = lane_y() + (static_cast<float>(block_y(t, b)) + 0.5f);
    // Pixels outside the image count as finished, or they would enter the statistics.
    const vint inside = (pixels.px[b] < static_cast<float>(t.width)) &
                        (pixels.py[b] < static_cast<float>(t.height));
    pixels.transmittance[b] = inside ? splat(1.0f) : vfloat{};
    vfloat total{};
    for (int p = 0; p < kPlaneFeature; ++p) {
      pixels.grad[p][b] = load_block(back.grad_image + p * plane, t, b);
      total += pixels.grad[p][b] * load_block(back.image + p * plane, t, b);
    }
    for (int d = 0; d < t.num_features; ++d) {
      const size_t p = (kPlaneFeature + d) * plane;
      vfloat& grad = feature_grads[d * kBlocks + b];
      grad = load_block(back.grad_image + p, t, b);
      total += grad * load_block(back.image + p, t, b);
    }
    pixels.rest[b] = total;
    pixels.error[b] = back.error ? load_block(back.error, t, b) : vfloat{};
  }
}

// Adds one block to a sphere's sums and moves the block's pixels behind the sphere.
template <bool kWithStatistics>
void backward_block(const Splat& s, BackwardPixels& pixels, int b, const float* features,
                    int num_features, const vfloat* feature_grads, vfloat* sums) {
  vfloat& T = pixels.transmittance[b];
  const Contribution c = contribution(s, pixels.px[b], pixels.py[b], T);
  const vfloat w = c.alpha * T;
  vfloat q = pixels.grad[kPlaneRed][b] * s.r + pixels.grad[kPlaneGreen][b] * s.g +
             pixels.grad[kPlaneBlue][b] * s.b + pixels.grad[kPlaneDepth][b] * s.z +
             pixels.grad[kPlaneSilhouette][b];
  vfloat* const feature_sums = sums + kSums;
  for (int d = 0; d < num_features; ++d) {
    const vfloat grad = feature_grads[d * kBlocks + b];
    q += grad * features[d];
    feature_sums[d] += w * grad;
  }
  pixels.rest[b] -= w * q;
  const vfloat G = (vfloat)(c.free & (vint)(w * q - c.alpha / (1.0f - c.alpha) * pixels.rest[b]));
  sums[kSumRed] += w * pixels.grad[kPlaneRed][b];
  sums[kSumGreen] += w * pixels.grad[kPlaneGreen][b];
  sums[kSumBlue] += w * pixels.grad[kPlaneBlue][b];
  sums[kSumDepth] += w * pixels.grad[kPlaneDepth][b];
  sums[kSumG] += G;
  sums[kSumGdx] += G * c.dx;
  sums[kSumGdy] += G * c.dy;
  sums[kSumGd2] += G * c.d2;
  if constexpr (kWithStatistics) {
    vfloat* const statistics = feature_sums + num_features;
    statistics[kStatWeight] += w;
    statistics[kStatWeightedError] += w * pixels.error[b];
    statistics[kStatMaxWeight] = max(statistics[kStatMaxWeight], w);
    statistics[kStatPixels] += w > 0.0f ? splat(1.0f) : vfloat{};
  }
  T -= w;
}

// Without features the number of sums is known to the compiler, which keeps them in registers.
template <bool kWithStatistics, bool kWithFeatures>
void backward_all(const TileSpheres& t, const BackwardTile& back) {
  BackwardPixels pixels;
  vfloat feature_grads[kWithFeatures ? kMaxFeatures * kBlocks : 1];
  load_backward_pixels(t, back, feature_grads, pixels);
  const BlockTest test(t);
  const int num_features = kWithFeatures ? t.num_features : 0;
  const int num_sums = kSums + num_features + (kWithStatistics ? kStatistics : 0);
  vfloat sums[kSums + kMaxFeatures + kStatistics];
  uint64_t alive = ~uint64_t{0};
  for (uint32_t i = 0; i < t.count; ++i) {
    const uint32_t rank = t.ranks[i];
    const Splat& s = t.splats[rank];
    const float* features = t.features + static_cast<size_t>(rank) * num_features;
    for (int k = 0; k < num_sums; ++k) sums[k] = vfloat{};
    for (uint64_t bits = test.reached(s, t.radius2[rank]) & alive; bits; bits &= bits - 1) {
      const int b = __builtin_ctzll(bits);
      backward_block<kWithStatistics>(s, pixels, b, features, num_features, feature_grads, sums);
      if (i % kSaturationStride == 0 && !any(pixels.transmittance[b] >= kMinTransmittance))
        alive &= ~(uint64_t{1} << b);
    }
    float* out = back.sums + static_cast<size_t>(t.slots[i]) * back.stride;
    static_assert(kSums == 8);
    sum_eight(sums, out);
    for (int k = kSums; k < num_sums; ++k) out[k] = sum(sums[k]);
    if constexpr (kWithStatistics) {
      const int k = kSums + num_features + kStatMaxWeight;
      out[k] = largest(sums[k]);
    }
  }
}

}  // namespace

void forward_tile(const TileSpheres& tile, float* image) {
  uint32_t counts[kBlocks];
  list_blocks(tile, counts);
  for (int b = 0; b < kBlocks; ++b)
    if (block_in_image(tile, b)) forward_block(tile, b, counts[b], image);
}

void backward_tile(const TileSpheres& tile, const BackwardTile& backward) {
  const bool with_statistics = backward.stride == kSums + tile.num_features + kStatistics;
  const bool with_features = tile.num_features > 0;
  const auto run = with_statistics
                       ? (with_features ? backward_all<true, true> : backward_all<true, false>)
                       : (with_features ? backward_all<false, true> : backward_all<false, false>);
  run(tile, backward);
}

}  // namespace gsslam::GSSLAM_ISA
