// A linear layer with 4-bit weights and 8-bit activations; gsslam/quant/reference.py specifies it.
#pragma once

#include <cstdint>

namespace gsslam {

inline constexpr int64_t kGroup = 128;      // inputs that share a weight's scale and zero point
inline constexpr int64_t kBlock = 32;       // inputs that share an activation's scale
inline constexpr int64_t kOutputTile = 16;  // outputs whose weights are interleaved
inline constexpr int64_t kStepBytes = 64;   // of a tile's weights for 8 inputs

// Inputs are filled up to a multiple of kGroup, outputs to one of kOutputTile.
struct PackedWeights {
  // (tiles, inputs / 8, 64): byte 4 o + i of a step holds, for output o of the tile, the weight of
  // input i of the step's eight in its low four bits and that of input i + 4 in the high ones.
  const uint8_t* steps;
  const float* scales;   // (tiles, groups, kOutputTile)
  const uint8_t* zeros;  // (tiles, groups, kOutputTile), 0 to 15
  const float* bias;     // (outputs), or null
  int64_t outputs, inputs, groups;
};

struct QuantizedRows {
  const int8_t* values;  // (rows, groups * kGroup), -127 to 127
  const float* scales;   // (rows, groups * kGroup / kBlock)
  const float* sums;     // (rows, groups): sums of scale * value
  int64_t rows;
};

}  // namespace gsslam
