// Sums over a cell's pixels by the tensor cores, eight spheres at a time.
//
// A matrix whose rows are w and G of eight spheres and whose columns are the cell's 32 pixels is
// multiplied by the pixels' gradients (for w) and by 1, x, y, x^2 + y^2 (for G), with x and y from
// the cell's centre. TF32 keeps 11 bits, so that w, G and the gradients are split in two parts and
// the product of the small parts is dropped; 1, x, y and their squares are exact.
#pragma once

#include "common/reduce.cuh"
#include "rasterize/cuda_cell.cuh"

namespace gsslam {

inline constexpr int kStagedSpheres = kVisits;
static_assert(kStagedSpheres == 8);

__device__ __forceinline__ float tf32_high(float x) {
  return __uint_as_float(__float_as_uint(x) & 0xffffe000u);
}

// d += a b for a (16, 8), b (8, 8).
__device__ __forceinline__ void multiply_add(float (&d)[4], const float (&a)[4], float b0,
                                             float b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
#endif
}

class CellSums {
 public:
  struct Shared {
    float rows[2 * kStagedSpheres][36];  // w, then G; the padding keeps banks apart
  };

  // Gradients of the lane's pixel. Must be called by the whole warp, as all else here.
  __device__ __forceinline__ CellSums(Shared& shared, const CellPixel& c, const float (&grad)[4],
                                      float* sums)
      : shared_(shared), sums_(sums) {
    const int lane = threadIdx.x & 31;
    centre_x_ = c.x - lane % kCellWidth + (kCellWidth - 1) * 0.5f;
    centre_y_ = c.y - lane / kCellWidth + (kCellHeight - 1) * 0.5f;
#pragma unroll
    for (int k = 0; k < 4; ++k) shared.rows[k][lane] = grad[k];
    __syncwarp();
    const int column = lane / 4, first = lane % 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int pixel = i / 2 * 8 + i % 2 * 4 + first;
      const float x = pixel % kCellWidth - (kCellWidth - 1) * 0.5f;
      const float y = pixel / kCellWidth - (kCellHeight - 1) * 0.5f;
      const float value = column < 4    ? shared.rows[column & 3][pixel]
                          : column == 4 ? 1.0f
                          : column == 5 ? x
                          : column == 6 ? y
                                        : x * x + y * y;
      high_[i] = tf32_high(value);
      low_[i] = value - high_[i];
    }
    __syncwarp();
  }

  // Of the sphere at a place in its group.
  __device__ __forceinline__ void add(int place, float w, float G) {
    const int lane = threadIdx.x & 31;
    shared_.rows[place][lane] = w;
    shared_.rows[kStagedSpheres + place][lane] = G;
  }

  // Stores the sums of a group of spheres, which lie in scratch from [buffer][first_sphere] on.
  __device__ __forceinline__ void store(const CellScratch<false>& scratch, int buffer,
                                        int first_sphere, int number) {
    __syncwarp();
    const int lane = threadIdx.x & 31, row = lane / 4, first = lane % 4;
    float d[4] = {};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int pixel = 8 * step + first;
      const float a[4] = {shared_.rows[row][pixel], shared_.rows[row + 8][pixel],
                          shared_.rows[row][pixel + 4], shared_.rows[row + 8][pixel + 4]};
      float high[4], low[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        high[k] = tf32_high(a[k]);
        low[k] = a[k] - high[k];
      }
      multiply_add(d, low, high_[2 * step], high_[2 * step + 1]);
      multiply_add(d, high, low_[2 * step], low_[2 * step + 1]);
      multiply_add(d, high, high_[2 * step], high_[2 * step + 1]);
    }
    const float G = __shfl_sync(kFullWarp, d[2], (lane & ~3) + 2);
    const float Gx = __shfl_sync(kFullWarp, d[3], (lane & ~3) + 2);
    if (row < number) {
      const Splat& owner = scratch.splats[buffer][first_sphere + row];
      const float x = owner.mx - centre_x_, y = owner.my - centre_y_;
      float2 out{d[0], d[1]};
      if (first == 2) out = {G, Gx - x * G};
      if (first == 3) out = {d[2] - y * G, d[3] - 2 * (x * Gx + y * d[2]) + (x * x + y * y) * G};
      const uint64_t slot = scratch.items[buffer][first_sphere + row].slot;
      reinterpret_cast<float2*>(sums_)[4 * slot + first] = out;
    }
    __syncwarp();  // the next group overwrites the rows
  }

 private:
  Shared& shared_;
  float* sums_;
  float centre_x_, centre_y_;
  float high_[8], low_[8];
};

}  // namespace gsslam
