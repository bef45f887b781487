// The loss on one band of rows, on vectors of pixels.
//
// Windows are separable. The vertical pass comes first: it reads rows that neighbouring windows
// share, so a band repeats no convolution of its neighbours, and its result, one row, stays in the
// first-level cache for the horizontal pass, whose own result never leaves the registers.
#define GSSLAM_WIDE
#include "losses/cpu_loss_band.h"

#include "common/vec.h"

namespace gsslam::GSSLAM_ISA {
namespace {

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

vint first_lanes(int64_t n) { return lane_index() < static_cast<float>(smaller(n, kLanes)); }

vfloat masked(vint mask, vfloat v) { return (vfloat)(mask & (vint)v); }

vfloat sign(vfloat v) { return masked(v > 0.0f, splat(1.0f)) - masked(v < 0.0f, splat(1.0f)); }

// NaN fails the comparisons.
vint measured(vfloat depth) { return (depth > 0.0f) & (depth < __builtin_inff()); }

// The window over eleven vectors that lie `stride` apart.
vfloat convolve(const float* p, int64_t stride) {
  vfloat result = kWindowWeights[kWindowRadius] * load(p + kWindowRadius * stride);
  for (int i = 0; i < kWindowRadius; ++i)
    result += kWindowWeights[i] * (load(p + i * stride) + load(p + (kWindow - 1 - i) * stride));
  return result;
}

struct Moments {
  vfloat mean, square;
};

// The same of the vectors and of their squares.
Moments moments(const float* p, int64_t stride) {
  const vfloat centre = load(p + kWindowRadius * stride);
  Moments m{kWindowWeights[kWindowRadius] * centre,
            kWindowWeights[kWindowRadius] * (centre * centre)};
  for (int i = 0; i < kWindowRadius; ++i) {
    const vfloat a = load(p + i * stride), b = load(p + (kWindow - 1 - i) * stride);
    m.mean += kWindowWeights[i] * (a + b);
    m.square += kWindowWeights[i] * (a * a + b * b);
  }
  return m;
}

void clear_pads(float* row, int64_t width, int64_t stride) {
  std::memset(row, 0, sizeof(float) * kPad);
  std::memset(row + kPad + width, 0, sizeof(float) * (stride - kPad - width));
}

// Sum and difference of the two images, one colour, on the rows that a band's windows reach.
struct BandImages {
  float *sum, *difference;  // (kBandReach, stride), padded
};

void load_band(const LossImages& images, const LossScales& scales, int colour, int64_t first_row,
               int64_t stride, const BandImages& band) {
  const float* rendered = images.rendered + (kPlaneRed + colour) * images.pixels();
  const float* observed = images.colour + colour * images.pixels();
  for (int64_t i = 0; i < kBandReach; ++i) {
    const int64_t y = first_row - kWindowRadius + i;
    float* sum = band.sum + i * stride;
    float* difference = band.difference + i * stride;
    if (y < 0 || y >= images.height) {
      std::memset(sum, 0, sizeof(float) * stride);
      std::memset(difference, 0, sizeof(float) * stride);
      continue;
    }
    clear_pads(sum, images.width, stride);
    clear_pads(difference, images.width, stride);
    for (int64_t x = 0; x < images.width; x += kLanes) {
      const int64_t lanes = images.width - x, at = y * images.width + x;
      const vfloat a = load_first(rendered + at, lanes) * scales.gain + scales.bias;
      const vfloat b = load_first(observed + at, lanes);
      store(sum + kPad + x, masked(first_lanes(lanes), a + b));
      store(difference + kPad + x, masked(first_lanes(lanes), a - b));
    }
  }
}

struct SsimDerivatives {
  vfloat dssim;                          // 1 - SSIM
  vfloat mean;                           // d / d mean of the sum + d / d mean of the difference
  vfloat sum_square, difference_square;  // d / d mean of the squares
};

// With s = x + y, d = x - y, a and b their squared means, u and v their variances:
//   2 mean(x) mean(y) = (a - b) / 2, mean(x)^2 + mean(y)^2 = (a + b) / 2,
//   2 cov(x, y)       = (u - v) / 2, var(x) + var(y)       = (u + v) / 2.
// So SSIM is p q with p = (a - b + 2 C1) / (a + b + 2 C1) and q = (u - v + 2 C2) / (u + v + 2 C2):
// four convolutions instead of five, and no cancellation where the images agree.
SsimDerivatives ssim_derivatives(const Moments& s, const Moments& d) {
  const vfloat a = s.mean * s.mean, b = d.mean * d.mean;
  const vfloat u = s.square - a, v = d.square - b;
  const vfloat inv_p = 1.0f / (a + b + 2 * kC1), inv_q = 1.0f / (u + v + 2 * kC2);
  const vfloat p = (a - b + 2 * kC1) * inv_p, q = (u - v + 2 * kC2) * inv_q;
  SsimDerivatives out;
  out.dssim = 2.0f * (b * inv_p + p * v * inv_q);  // (1 - p) + p (1 - q)
  out.sum_square = p * inv_q * inv_q * 2.0f * v;
  out.difference_square = -p * inv_q * (1.0f + q);
  const vfloat d_a = q * inv_p * inv_p * 2.0f * b - out.sum_square;
  const vfloat d_b = -q * inv_p * (1.0f + p) - out.difference_square;
  out.mean = 2.0f * (s.mean * d_a + d.mean * d_b);
  return out;
}

// Derivative of the summed SSIM with respect to the compared colour.
vfloat ssim_gradient(const float* const rows[3], int64_t x, vfloat sum, vfloat difference) {
  const int64_t window = kPad + x - kWindowRadius;
  return convolve(rows[0] + window, 1) +
         2.0f * (sum * convolve(rows[1] + window, 1) + difference * convolve(rows[2] + window, 1));
}

template <bool kWithSsim>
void colour_row(const LossImages& images, const LossScales& scales, const LossOutputs& outputs,
                int colour, int64_t y, const float* const rows[3], DoubleSum sums[3]) {
  const int64_t start = y * images.width;
  const float* rendered = images.rendered + (kPlaneRed + colour) * images.pixels() + start;
  const float* observed = images.colour + colour * images.pixels() + start;
  float* gradient = outputs.gradient + (kPlaneRed + colour) * images.pixels() + start;
  float* error = outputs.error + start;
  for (int64_t x = 0; x < images.width; x += kLanes) {
    const int64_t lanes = images.width - x;
    const vint inside = first_lanes(lanes);
    const vfloat c = load_first(rendered + x, lanes), b = load_first(observed + x, lanes);
    const vfloat a = c * scales.gain + scales.bias;
    const vfloat residual = masked(inside, a - b);
    vfloat g = scales.l1 * sign(residual);
    if constexpr (kWithSsim) g += scales.ssim * ssim_gradient(rows, x, a + b, residual);
    g = masked(inside, g);
    sums[0].add(abs(residual));
    sums[1].add(g * c);
    sums[2].add(g);
    store_first(gradient + x, scales.gain * g, lanes);
    const vfloat third = abs(residual) * (1.0f / kColours);
    store_first(error + x, colour == 0 ? third : load_first(error + x, lanes) + third, lanes);
  }
}

void depth_row(const LossImages& images, const LossScales& scales, const LossOutputs& outputs,
               int64_t y, DoubleSum& depth_sum, DoubleSum& silhouette_sum) {
  const int64_t start = y * images.width;
  const int64_t depth = kPlaneDepth * images.pixels() + start;
  const int64_t silhouette = kPlaneSilhouette * images.pixels() + start;
  for (int64_t x = 0; x < images.width; x += kLanes) {
    const int64_t lanes = images.width - x;
    const vfloat z = load_first(images.depth + start + x, lanes);
    const vfloat weighted = load_first(images.rendered + depth + x, lanes);
    const vfloat s = load_first(images.rendered + silhouette + x, lanes);
    const vint seen = measured(z), compared = seen & (s > scales.silhouette_threshold);
    const vfloat inv_s = 1.0f / (compared ? s : splat(1.0f));
    const vfloat expected = weighted * inv_s;
    const vfloat residual = masked(compared, expected - z);
    const vfloat g = scales.depth * sign(residual) * inv_s;
    depth_sum.add(abs(residual));
    silhouette_sum.add(masked(seen, 1.0f - s));
    store_first(outputs.gradient + depth + x, g, lanes);
    store_first(outputs.gradient + silhouette + x,
                masked(compared, -g * expected) - masked(seen, splat(scales.silhouette)), lanes);
  }
}

// The vertical pass over the three maps of a colour.
void convolve_columns(const SsimMaps& maps, int colour, int64_t y, int64_t width,
                      float* const rows[3]) {
  for (int map = 0; map < 3; ++map) {
    const float* window = maps.window(colour, map, y);
    for (int64_t x = kPad; x < kPad + width; x += kLanes)
      store(rows[map] + x, convolve(window + x, maps.stride));
  }
}

}  // namespace

int64_t count_measured(const float* depth, int64_t pixels) {
  vint count{};
  for (int64_t i = 0; i < pixels; i += kLanes)
    count -= measured(load_first(depth + i, pixels - i));  // a lane that holds is -1
  int64_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += count[i];
  return total;
}

double ssim_band(const LossImages& images, const LossScales& scales, const SsimMaps& maps,
                 int colour, int64_t band, float* scratch) {
  const int64_t stride = maps.stride, first_row = band * kBandRows;
  const BandImages input{scratch, scratch + kBandReach * stride};
  float* const sum_mean = scratch + 2 * kBandReach * stride;
  float* const sum_square = sum_mean + stride;
  float* const difference_mean = sum_square + stride;
  float* const difference_square = difference_mean + stride;
  for (int i = 0; i < 4; ++i) clear_pads(sum_mean + i * stride, images.width, stride);
  load_band(images, scales, colour, first_row, stride, input);
  DoubleSum total;
  const int64_t end = smaller(images.height, first_row + kBandRows);
  for (int64_t y = first_row; y < end; ++y) {
    const int64_t top = (y - first_row) * stride;
    for (int64_t x = kPad; x < kPad + images.width; x += kLanes) {
      const Moments s = moments(input.sum + top + x, stride);
      const Moments d = moments(input.difference + top + x, stride);
      store(sum_mean + x, s.mean);
      store(sum_square + x, s.square);
      store(difference_mean + x, d.mean);
      store(difference_square + x, d.square);
    }
    float* out[3];
    for (int map = 0; map < 3; ++map) out[map] = maps.window(colour, map, y + kWindowRadius) + kPad;
    for (int64_t x = 0; x < images.width; x += kLanes) {
      const int64_t window = kPad + x - kWindowRadius, lanes = images.width - x;
      const SsimDerivatives t = ssim_derivatives(
          {convolve(sum_mean + window, 1), convolve(sum_square + window, 1)},
          {convolve(difference_mean + window, 1), convolve(difference_square + window, 1)});
      total.add(masked(first_lanes(lanes), t.dssim));
      store_first(out[0] + x, t.mean, lanes);
      store_first(out[1] + x, t.sum_square, lanes);
      store_first(out[2] + x, t.difference_square, lanes);
    }
  }
  return total.total();
}

LossSums gradient_band(const LossImages& images, const LossScales& scales, const SsimMaps& maps,
                       const LossOutputs& outputs, int64_t band, float* scratch) {
  DoubleSum colour[3], depth, silhouette;
  float* const rows[3] = {scratch, scratch + maps.stride, scratch + 2 * maps.stride};
  if (maps.data)
    for (float* row : rows) clear_pads(row, images.width, maps.stride);
  const int64_t end = smaller(images.height, (band + 1) * kBandRows);
  for (int64_t y = band * kBandRows; y < end; ++y) {
    for (int c = 0; c < kColours; ++c) {
      if (maps.data) {
        convolve_columns(maps, c, y, images.width, rows);
        colour_row<true>(images, scales, outputs, c, y, rows, colour);
      } else {
        colour_row<false>(images, scales, outputs, c, y, rows, colour);
      }
    }
    depth_row(images, scales, outputs, y, depth, silhouette);
  }
  return {colour[0].total(), depth.total(), silhouette.total(), colour[1].total(),
          colour[2].total()};
}

}  // namespace gsslam::GSSLAM_ISA
