// Projection of a sphere and its derivative: one source for the CPU and for CUDA.
// Formulas: docs/conventions.md, "Rendering".
#pragma once

#include <cmath>
#include <cstdint>

#include "rasterize/constants.h"

#ifdef __CUDACC__
#define GSSLAM_HD __host__ __device__ __forceinline__
#else
#define GSSLAM_HD inline
#endif

namespace gsslam {

// A pinhole camera at a pose.
struct View {
  int width, height;
  float fx, fy, cx, cy;  // pixels; pixel centres at integer + 0.5
  float low_pass;        // h: pixels^2 added to every projected variance
  float R[9], t[3];      // T_camera_world, R row-major
};

// A projected sphere, as the blending loops read it.
struct alignas(32) Splat {
  float mx, my;   // centre, pixels
  float k;        // -log2(e) / (2 s^2)
  float opacity;  // compensated for the low-pass
  float r, g, b;
  float z;  // depth, metres
};

// Sphere parameters in and out of the map.
struct Sphere {
  float x, y, z, log_radius, opacity_logit;
};

// Fills all of `splat` but its colour and returns the square of the radius (pixels) outside which
// the sphere's alpha is under kMinAlpha, or a negative number if the sphere is not drawn.
GSSLAM_HD float project_sphere(const View& v, const Sphere& sphere, Splat& splat) {
  const float x = v.R[0] * sphere.x + v.R[1] * sphere.y + v.R[2] * sphere.z + v.t[0];
  const float y = v.R[3] * sphere.x + v.R[4] * sphere.y + v.R[5] * sphere.z + v.t[1];
  const float z = v.R[6] * sphere.x + v.R[7] * sphere.y + v.R[8] * sphere.z + v.t[2];
  // Comparisons are written so that NaN fails them.
  if (!(z > kNearPlane)) return -1;
  const float inv_z = 1 / z;
  const float sigma = sqrtf(v.fx * v.fy) * expf(sphere.log_radius) * inv_z;
  if (!(sigma < kMaxSigma)) return -1;
  const float sigma2 = sigma * sigma;
  const float s2 = sigma2 + v.low_pass;
  const float opacity = sigma2 / (s2 * (1 + expf(-sphere.opacity_logit)));
  if (!(opacity >= kMinAlpha)) return -1;
  splat.mx = v.fx * x * inv_z + v.cx;
  splat.my = v.fy * y * inv_z + v.cy;
  splat.k = -kLog2e / (2 * s2);
  splat.opacity = opacity;
  splat.z = z;
  // A little more than exact: the blending loops test alpha itself.
  return 2 * s2 * logf(opacity * (1 / kMinAlpha)) * 1.0001f + 1e-3f;
}

// Camera point and variances of a splat, recovered from it.
struct SplatGeometry {
  float x, y, z;     // camera point
  float s2, sigma2;  // with and without the low-pass
};

GSSLAM_HD SplatGeometry geometry_of(const View& v, const Splat& splat) {
  SplatGeometry g;
  g.z = splat.z;
  g.x = (splat.mx - v.cx) * splat.z / v.fx;
  g.y = (splat.my - v.cy) * splat.z / v.fy;
  g.s2 = -kLog2e / (2 * splat.k);
  g.sigma2 = g.s2 - v.low_pass;
  return g;
}

// Chain rule from the sums over a sphere's pixels to the gradient of its camera point and
// parameters.
struct SphereGradient {
  float camera[3];  // dL / d camera point
  float point[3];   // dL / d world point
  float log_radius;
  float opacity_logit;
};

GSSLAM_HD SphereGradient chain_rule(const View& v, const Sphere& sphere, const Splat& splat,
                                    const float* sums) {
  const SplatGeometry g = geometry_of(v, splat);
  const float inv_z = 1 / g.z, inv_s2 = 1 / g.s2;
  const float d_mx = sums[kSumGdx] * inv_s2, d_my = sums[kSumGdy] * inv_s2;
  // d ln(alpha) / d ln(sigma^2): opacity compensation, then the width of the circle.
  const float d_ln_sigma2 =
      sums[kSumG] * (1 - g.sigma2 * inv_s2) + sums[kSumGd2] * g.sigma2 * inv_s2 * inv_s2 * 0.5f;
  SphereGradient out;
  out.camera[0] = v.fx * inv_z * d_mx;
  out.camera[1] = v.fy * inv_z * d_my;
  out.camera[2] =
      -(out.camera[0] * g.x + out.camera[1] * g.y + 2 * d_ln_sigma2) * inv_z + sums[kSumDepth];
  for (int i = 0; i < 3; ++i)
    out.point[i] = v.R[i] * out.camera[0] + v.R[3 + i] * out.camera[1] + v.R[6 + i] * out.camera[2];
  out.log_radius = 2 * d_ln_sigma2;
  out.opacity_logit = sums[kSumG] / (1 + expf(sphere.opacity_logit));
  return out;
}

// Adds a pass's statistics of a sphere to those kept, `stride` apart. What is kept fades by `decay`
// in every pass that sees the sphere, and in no other.
GSSLAM_HD void keep_statistics(const float (&pass)[kStatistics], float decay, float* kept,
                               int64_t stride) {
  if (!(pass[kStatPixels] > 0)) return;
  for (int k = 0; k < kStatistics; ++k) {
    const float faded = decay * kept[k * stride];
    kept[k * stride] = k == kStatMaxWeight ? fmaxf(faded, pass[k]) : faded + pass[k];
  }
}

// d ln(alpha) / d camera point at a pixel, as coefficients of what varies between pixels:
// (a dx, b dy, c dx + e dy + q0 + q1 d^2).
struct AlphaJacobian {
  float a, b, c, e, q0, q1;
};

GSSLAM_HD AlphaJacobian alpha_jacobian(const View& v, const SplatGeometry& g) {
  AlphaJacobian j;
  const float inv_z = 1 / g.z, inv_s2 = 1 / g.s2;
  j.a = v.fx * inv_z * inv_s2;
  j.b = v.fy * inv_z * inv_s2;
  j.c = -j.a * g.x * inv_z;
  j.e = -j.b * g.y * inv_z;
  j.q0 = -2 * inv_z * (1 - g.sigma2 * inv_s2);
  j.q1 = -inv_z * g.sigma2 * inv_s2 * inv_s2;
  return j;
}

}  // namespace gsslam
