// Adam on the spheres that a step has touched.
//
// Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1, except that
// every sphere has a step count of its own: a sphere that no pixel saw keeps its parameters, its
// moments and its count.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gsslam {

inline constexpr int64_t kAdamChunk = 512;  // spheres that one task steps

// A sphere with a gradient entry of at least this size, or NaN, is not stepped: the square of such
// an entry is no float and would stop the sphere for good.
inline constexpr float kMaxGradient = 1.8e19f;

// Row-major (rows, capacity) matrices of which the first `count` columns are spheres.
struct AdamSpheres {
  float* parameters;
  float* gradient;  // set to 0 in all live columns
  float* first_moment;
  float* second_moment;
  int32_t* steps;               // (capacity,)
  const float* learning_rates;  // (rows,)
  int rows;
  int64_t capacity;
  int64_t count;
};

struct AdamRates {
  float weight1, weight2;  // of a new gradient: 1 - beta, rounded after the subtraction
  float epsilon;
  // 1 / (1 - beta1^t) and 1 / sqrt(1 - beta2^t) of step t; past the last entry both are 1.
  const float* correction1;
  const float* correction2;
  int32_t table_size;
};

struct AdamCounts {
  int64_t stepped = 0;
  int64_t skipped = 0;  // for a gradient that is not finite
};

}  // namespace gsslam
