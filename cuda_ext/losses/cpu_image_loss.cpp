#include "losses/cpu_image_loss.h"

#include "common/isa.h"
#include "common/thread_pool.h"

namespace gsslam {
namespace {

// Kept from band to band, so that in steady state nothing is allocated.
float* thread_scratch(int64_t width) {
  thread_local std::vector<float> scratch;
  if (scratch.size() < ssim_scratch_size(width)) scratch.resize(ssim_scratch_size(width));
  return scratch.data();
}

int64_t band_count(const LossImages& images) { return (images.height + kBandRows - 1) / kBandRows; }

}  // namespace

LossValue CpuImageLoss::evaluate(const LossImages& images, double gain, double bias,
                                 const LossWeights& weights, const LossOutputs& outputs) {
  const double pixels = static_cast<double>(images.pixels()), values = kColours * pixels;
  const int64_t measured = GSSLAM_DISPATCH(count_measured)(images.depth, images.pixels());
  const double per_measured = measured > 0 ? 1.0 / static_cast<double>(measured) : 0;
  const LossScales scales{static_cast<float>(gain),
                          static_cast<float>(bias),
                          static_cast<float>((1 - weights.ssim) / values),
                          static_cast<float>(-weights.ssim / values),
                          static_cast<float>(weights.depth / pixels),
                          static_cast<float>(weights.silhouette * per_measured),
                          weights.silhouette_threshold};
  SsimMaps maps{};
  LossValue value{};
  if (weights.ssim != 0) {
    maps = maps_for(images);
    value.dssim = mean_dssim(images, scales, maps);
  }
  const auto gradient_band = GSSLAM_DISPATCH(gradient_band);
  band_sums_.resize(band_count(images));
  parallel_for(band_sums_.size(), [&](size_t band) {
    band_sums_[band] = gradient_band(images, scales, maps, outputs, static_cast<int64_t>(band),
                                     thread_scratch(images.width));
  });
  for (const LossSums& sums : band_sums_) {
    value.l1 += sums.l1 / values;
    value.depth += sums.depth / pixels;
    value.silhouette += sums.silhouette * per_measured;
    value.grad_gain += sums.grad_gain;
    value.grad_bias += sums.grad_bias;
  }
  value.total = (1 - weights.ssim) * value.l1 + weights.ssim * value.dssim +
                weights.depth * value.depth + weights.silhouette * value.silhouette;
  return value;
}

SsimMaps CpuImageLoss::maps_for(const LossImages& images) {
  SsimMaps maps{nullptr, images.height, padded_stride(images.width)};
  if (images.width != maps_width_ || images.height != maps_height_) {
    maps_.assign(static_cast<size_t>(maps.map_size()) * kColours * 3, 0.0f);
    maps_width_ = images.width;
    maps_height_ = images.height;
  }
  maps.data = maps_.data();
  return maps;
}

double CpuImageLoss::mean_dssim(const LossImages& images, const LossScales& scales,
                                const SsimMaps& maps) {
  const auto ssim_band = GSSLAM_DISPATCH(ssim_band);
  dssim_sums_.resize(band_count(images) * kColours);
  parallel_for(dssim_sums_.size(), [&](size_t task) {
    dssim_sums_[task] =
        ssim_band(images, scales, maps, static_cast<int>(task % kColours),
                  static_cast<int64_t>(task / kColours), thread_scratch(images.width));
  });
  double total = 0;
  for (double sum : dssim_sums_) total += sum;
  return total / static_cast<double>(kColours * images.pixels());
}

}  // namespace gsslam
