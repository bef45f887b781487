// Rigid motions on the device, in double precision. T is the upper 3 x 4 of T_camera_world, row by
// row; twists are (translation, rotation), as in gsslam/geometry.py.
#pragma once

#include "rasterize/math.h"

namespace gsslam {

struct Pinhole {
  int width, height;
  float fx, fy, cx, cy, low_pass;
};

__device__ inline View view_of(const Pinhole& camera, const double* T) {
  View v;
  v.width = camera.width;
  v.height = camera.height;
  v.fx = camera.fx;
  v.fy = camera.fy;
  v.cx = camera.cx;
  v.cy = camera.cy;
  v.low_pass = camera.low_pass;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column)
      v.R[3 * row + column] = static_cast<float>(T[4 * row + column]);
    v.t[row] = static_cast<float>(T[4 * row + 3]);
  }
  return v;
}

// T becomes exp(xi) T, its rotation orthonormal again.
__device__ inline void move_pose(const double* xi, double* T) {
  const double x = xi[3], y = xi[4], z = xi[5];
  const double angle2 = x * x + y * y + z * z, angle = sqrt(angle2);
  double a, b, c;  // sin(t)/t, (1-cos(t))/t^2, (t-sin(t))/t^3
  if (angle < 1e-4) {
    a = 1 - angle2 / 6;
    b = 0.5 - angle2 / 24;
    c = 1.0 / 6 - angle2 / 120;
  } else {
    double sine, cosine;
    sincos(angle, &sine, &cosine);
    a = sine / angle;
    b = (1 - cosine) / angle2;
    c = (angle - sine) / (angle2 * angle);
  }
  const double W[9] = {0, -z, y, z, 0, -x, -y, x, 0};
  double E[12];
  for (int i = 0; i < 3; ++i) {
    double translation = 0;
    for (int j = 0; j < 3; ++j) {
      double square = 0;
      for (int k = 0; k < 3; ++k) square += W[3 * i + k] * W[3 * k + j];
      const double one = i == j;
      E[4 * i + j] = one + a * W[3 * i + j] + b * square;
      translation += (one + b * W[3 * i + j] + c * square) * xi[j];
    }
    E[4 * i + 3] = translation;
  }
  double moved[12];
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) {
      double sum = j == 3 ? E[4 * i + 3] : 0;
      for (int k = 0; k < 3; ++k) sum += E[4 * i + k] * T[4 * k + j];
      moved[4 * i + j] = sum;
    }
  // One step of Newton's method for the polar decomposition, R (3 - R^T R) / 2: rounding errors
  // are so small that their squares vanish.
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      double sum = 1.5 * moved[4 * i + j];
      for (int k = 0; k < 3; ++k) {
        double gram = 0;
        for (int r = 0; r < 3; ++r) gram += moved[4 * r + k] * moved[4 * r + j];
        sum -= 0.5 * moved[4 * i + k] * gram;
      }
      T[4 * i + j] = sum;
    }
    T[4 * i + 3] = moved[4 * i + 3];
  }
}

}  // namespace gsslam
