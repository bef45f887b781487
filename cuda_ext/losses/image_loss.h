// The mapping loss of one view. Formulas: gsslam/losses.py, image_loss_reference.
#pragma once

#include <cstdint>

namespace gsslam {

inline constexpr int kColours = 3;

// SSIM: Wang et al., "Image quality assessment: from error visibility to structural similarity"
// (2004). A Gaussian window of 11 x 11 with a standard deviation of 1.5; zeros outside the image.
inline constexpr int kWindowRadius = 5;
inline constexpr int kWindow = 2 * kWindowRadius + 1;
inline constexpr float kWindowWeights[kWindowRadius + 1] = {// from the edge to the centre
                                                            1.0283800845e-03f, 7.5987581352e-03f,
                                                            3.6000772128e-02f, 1.0936068951e-01f,
                                                            2.1300553771e-01f, 2.6601172486e-01f};
inline constexpr float kC1 = 1e-4f, kC2 = 9e-4f;

struct LossImages {
  const float* rendered;  // (5 or more, height, width) in the order of Plane
  const float* colour;    // (3, height, width)
  const float* depth;     // (height, width) metres; measured where positive and finite
  int64_t width, height;

  int64_t pixels() const { return width * height; }
};

struct LossWeights {
  double ssim;  // lambda: colour is (1 - lambda) L1 + lambda (1 - SSIM)
  double depth;
  double silhouette;
  float silhouette_threshold;  // at least 0; the rendered depth counts where the silhouette is over
                               // it
};

struct LossOutputs {
  float* gradient;  // (5, height, width): dL / d rendered
  float* error;     // (height, width): mean over the colours of |compared colour - colour|
};

// Sums over pixels; each band of rows makes its own.
struct LossSums {
  double l1 = 0, depth = 0, silhouette = 0, grad_gain = 0, grad_bias = 0;
};

struct LossValue {
  double total;
  double l1, dssim, depth, silhouette;  // not weighted; dssim is 0 if its weight is
  double grad_gain, grad_bias;
};

}  // namespace gsslam
