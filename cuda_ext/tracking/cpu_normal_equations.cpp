// Exact Gauss-Newton normal equations of one tile. A block of pixels is rendered, its residuals and
// weights are formed, and the same list of spheres is walked again for the Jacobians, all in
// registers: no image is written.
#define GSSLAM_WIDE  // 16 lanes under AVX-512
#include "rasterize/cpu_blocks.h"
#include "tracking/tracking.h"

namespace gsslam::GSSLAM_ISA {
namespace {

constexpr int kColours = 3;
constexpr int kChannels = kColours + 1;  // and depth

struct Rendered {
  vfloat channel[kChannels];  // colours, then the sum of weight x depth
  vfloat silhouette;
};

// Residuals of a block, in units of their noise, and the weights of their squares.
struct Residuals {
  vfloat value[kChannels];
  vfloat weight[kChannels];
  vfloat inv_sigma;  // of depth
  vfloat expected_depth;
};

Rendered render(const TileSpheres& t, const uint32_t* list, uint32_t count, vfloat px, vfloat py) {
  const Blended sum = blend(t, list, count, px, py, [](uint32_t, vfloat) {});
  return {{sum.r, sum.g, sum.b, sum.depth}, sum.weight};
}

// Huber's weight of a residual whose limit is 1.
vfloat huber_weight(vfloat residual) { return 1.0f / max(abs(residual), splat(1.0f)); }

vfloat huber_cost(vfloat residual) {
  const vfloat size = abs(residual);
  return size < 1.0f ? 0.5f * size * size : size - 0.5f;
}

// Geman and McClure's: a depth residual of many sigma is another surface and must not pull at all.
vfloat geman_mcclure_weight(vfloat residual) {
  const vfloat ratio = kDepthScale2 / (kDepthScale2 + residual * residual);
  return ratio * ratio;
}

vfloat geman_mcclure_cost(vfloat residual) {
  const vfloat square = residual * residual;
  return 0.5f * kDepthScale2 * square / (kDepthScale2 + square);
}

vfloat masked(vint mask, vfloat value) { return (vfloat)(mask & (vint)value); }

// Fills the residuals and adds the block to the tile's cost and counts; false if no pixel takes
// part.
bool form_residuals(const TileSpheres& t, int block, const Rendered& rendered,
                    const Observation& seen, const TrackingWeights& k, vint inside, Residuals& out,
                    vfloat* sums) {
  const size_t plane = static_cast<size_t>(t.width) * t.height;
  const vint valid = inside & (rendered.silhouette >= k.silhouette_threshold);
  if (!any(valid)) return false;
  const vfloat one = masked(valid, splat(1.0f));
  sums[kTrackPixels] += one;
  for (int c = 0; c < kColours; ++c) {
    const vfloat observed = load_block(seen.rgb + c * plane, t, block);
    const vfloat residual = seen.gain * rendered.channel[c] + seen.bias - observed;
    sums[kTrackColourSquares] += masked(valid, residual * residual);
    out.value[c] = residual / k.huber_colour;
    out.weight[c] = masked(valid, huber_weight(out.value[c]));
    sums[kTrackCost] += masked(valid, huber_cost(out.value[c]));
  }
  const vfloat z = load_block(seen.depth, t, block);
  const vint measured = valid & (z > 0.0f) & (z < 1e30f);
  out.expected_depth = rendered.channel[kColours] / max(rendered.silhouette, splat(1e-6f));
  out.inv_sigma = masked(measured, 1.0f / (k.sigma_base + k.sigma_quadratic * z * z));
  const vfloat difference = masked(measured, out.expected_depth - z);
  sums[kTrackDepthPixels] += masked(measured, splat(1.0f));
  sums[kTrackDepthSquares] += difference * difference;
  out.value[kColours] = difference * out.inv_sigma;
  out.weight[kColours] =
      masked(measured, k.depth_weight * geman_mcclure_weight(out.value[kColours]));
  sums[kTrackCost] += masked(measured, k.depth_weight * geman_mcclure_cost(out.value[kColours]));
  return true;
}

// Derivative of the rendered colours and of the expected depth by the six of the twist.
struct Jacobian {
  vfloat of[kChannels][6];
};

void differentiate(const TileSpheres& t, const PoseSplat* pose_splats, const uint32_t* list,
                   uint32_t count, vfloat px, vfloat py, const Rendered& rendered,
                   const Residuals& residuals, Jacobian& J) {
  const vfloat inv_silhouette = 1.0f / max(rendered.silhouette, splat(1e-6f));
  vfloat T = splat(1.0f);
  // What is still to come of each channel. For depth the channel is (z - expected) / silhouette:
  // its derivative is that of the expected depth, and its sum over the spheres is zero.
  vfloat rest[kChannels] = {rendered.channel[0], rendered.channel[1], rendered.channel[2],
                            vfloat{}};
  for (auto& row : J.of)
    for (vfloat& value : row) value = vfloat{};
  for (uint32_t i = 0; i < count; ++i) {
    if (i % kSaturationStride == 0 && !any(T >= kMinTransmittance)) break;
    const Splat& s = t.splats[list[i]];
    const PoseSplat& p = pose_splats[list[i]];
    const Contribution c = contribution(s, px, py, T);
    const vfloat w = c.alpha * T;
    const vfloat ratio = c.alpha / (1.0f - c.alpha);
    const vfloat gx = p.a * c.dx, gy = p.b * c.dy;
    const vfloat gz = p.c * c.dx + p.e * c.dy + p.q0 + p.q1 * c.d2;
    const vfloat of_alpha[6] = {
        gx, gy, gz, p.y * gz - s.z * gy, s.z * gx - p.x * gz, p.x * gy - p.y * gx};
    const vfloat w_depth = w * inv_silhouette;
    const vfloat value[kChannels] = {w * s.r, w * s.g, w * s.b,
                                     w_depth * (s.z - residuals.expected_depth)};
    for (int k = 0; k < kChannels; ++k) {
      rest[k] -= value[k];
      const vfloat by_ln_alpha = masked(c.free, value[k] - ratio * rest[k]);
      for (int j = 0; j < 6; ++j) J.of[k][j] += by_ln_alpha * of_alpha[j];
    }
    J.of[kColours][2] += w_depth;
    J.of[kColours][3] += w_depth * p.y;
    J.of[kColours][4] -= w_depth * p.x;
    T -= w;
  }
}

// Adds weight * (row row^T, row residual) of each channel to the sums.
void accumulate(const Rendered& rendered, const Residuals& residuals, const Jacobian& J,
                const Observation& seen, const TrackingWeights& k, vfloat* sums) {
  for (int c = 0; c < kChannels; ++c) {
    const bool is_depth = c == kColours;
    const vfloat scale = is_depth ? residuals.inv_sigma : splat(seen.gain / k.huber_colour);
    vfloat row[kUnknowns];
    for (int j = 0; j < 6; ++j) row[j] = J.of[c][j] * scale;
    row[6] = is_depth ? vfloat{} : rendered.channel[c] / k.huber_colour;
    row[7] = is_depth ? vfloat{} : splat(1.0f / k.huber_colour);
    vfloat* hessian = sums + kTrackHessian;
    for (int i = 0; i < kUnknowns; ++i) {
      const vfloat weighted = residuals.weight[c] * row[i];
      for (int j = i; j < kUnknowns; ++j) *hessian++ += weighted * row[j];
      sums[kTrackGradient + i] += weighted * residuals.value[c];
    }
  }
}

// Bits of the tile's blocks that lie in the image and in a patch that is taken.
uint64_t wanted_blocks(const TileSpheres& t, const PatchSampling& sampling) {
  static_assert(kBlockWidth == kPatch && kPatch % kBlockHeight == 0);
  uint64_t bits = 0;
  for (int b = 0; b < kBlocks; ++b)
    if (block_in_image(t, b) && sampling.takes(block_x(t, b) / kPatch, block_y(t, b) / kPatch))
      bits |= uint64_t{1} << b;
  return bits;
}

// Renders the blocks that are wanted and calls body(list, its length, pixels' x and y, what was
// rendered, residuals) where a pixel takes part.
template <typename Body>
void for_each_block(const TileSpheres& tile, const Observation& seen,
                    const TrackingWeights& weights, const PatchSampling& sampling, vfloat* sums,
                    Body body) {
  const uint64_t wanted = wanted_blocks(tile, sampling);
  if (!wanted) return;
  uint32_t counts[kBlocks];
  list_blocks(tile, counts, wanted);
  for (uint64_t bits = wanted; bits; bits &= bits - 1) {
    const int b = __builtin_ctzll(bits);
    const vfloat px = lane_x() + (static_cast<float>(block_x(tile, b)) + 0.5f);
    const vfloat py = lane_y() + (static_cast<float>(block_y(tile, b)) + 0.5f);
    const vint inside =
        (px < static_cast<float>(tile.width)) & (py < static_cast<float>(tile.height));
    const uint32_t* list = tile.block_lists + static_cast<size_t>(b) * tile.count;
    const Rendered rendered = render(tile, list, counts[b], px, py);
    Residuals residuals;
    if (form_residuals(tile, b, rendered, seen, weights, inside, residuals, sums))
      body(list, counts[b], px, py, rendered, residuals);
  }
}

void write_sums(const vfloat* sums, double* out) {
  for (int k = 0; k < kTrackSums; ++k) out[k] = static_cast<double>(sum(sums[k]));
}

}  // namespace

void normal_equations_tile(const TileSpheres& tile, const PoseSplat* pose_splats,
                           const Observation& seen, const TrackingWeights& weights,
                           const PatchSampling& sampling, double* out) {
  vfloat sums[kTrackSums];
  for (vfloat& s : sums) s = vfloat{};
  for_each_block(tile, seen, weights, sampling, sums,
                 [&](const uint32_t* list, uint32_t count, vfloat px, vfloat py,
                     const Rendered& rendered, const Residuals& residuals) {
                   Jacobian J;
                   differentiate(tile, pose_splats, list, count, px, py, rendered, residuals, J);
                   accumulate(rendered, residuals, J, seen, weights, sums);
                 });
  write_sums(sums, out);
}

void residuals_tile(const TileSpheres& tile, const Observation& seen,
                    const TrackingWeights& weights, const PatchSampling& sampling, double* out) {
  vfloat sums[kTrackSums];
  for (vfloat& s : sums) s = vfloat{};
  for_each_block(
      tile, seen, weights, sampling, sums,
      [](const uint32_t*, uint32_t, vfloat, vfloat, const Rendered&, const Residuals&) {});
  write_sums(sums, out);
}

}  // namespace gsslam::GSSLAM_ISA
