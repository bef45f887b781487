#include <cooperative_groups.h>

#include <algorithm>

#include "attention/cuda_tensor_core.cuh"
#include "common/cuda_check.h"
#include "common/cuda_memory.h"
#include "quant/cuda_linear.h"
#include "quant/cuda_nibbles.cuh"

// The weights are the tensor cores' first factor and the rows of x the second: a product is 16
// outputs by 8 rows. A warp has two tiles of outputs and some groups of inputs, and reads weights
// and rows from global memory in the very order in which the products take them. Products of a
// group are sums of whole codes times x; a scale multiplies them in float32. What the warps of a
// block and then the blocks of a cluster have of a sum is added in order.
namespace gsslam {
namespace {

constexpr int kMostWarps = 16, kTilesPerWarp = 2;
constexpr int kOutputs = static_cast<int>(kOutputTile), kGroupInputs = static_cast<int>(kGroup);

struct WorkShape {
  int splits;                   // of the groups: blocks of a cluster
  int tile_warps, group_warps;  // of a block

  __host__ __device__ int outputs() const { return tile_warps * kTilesPerWarp * kOutputs; }
  // Rows of sums in shared memory are four longer than they need to be: then the eight outputs by
  // four rows that a warp writes at a time lie in different banks.
  __host__ __device__ int stride() const { return outputs() + 4; }
};

template <typename T>
struct LinearArguments {
  FragmentWeights weights;
  WorkShape shape;
  const T* x;
  T* y;
  int64_t rows, inputs;
};

// Weights are read once by an SM; x stays in its first-level cache, since several warps read it.
__device__ __forceinline__ uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// What a lane has of a tile's weights of a group.
struct TileGroup {
  uint4 codes[2];  // of 64 inputs each
  float2 scales;   // of the lane's two outputs
  uint16_t zeros;

  __device__ void load(const FragmentWeights& w, int tile, int group) {
    const int lane = threadIdx.x % 32;
    const int64_t unit = tile * w.groups + group;
    const uint4* from = reinterpret_cast<const uint4*>(w.codes) + unit * 64 + lane;
    codes[0] = load_once(from);
    codes[1] = load_once(from + 32);
    scales = __ldg(reinterpret_cast<const float2*>(w.scales) + unit * 8 + lane / 4);
    zeros = __ldg(reinterpret_cast<const uint16_t*>(w.zeros) + unit * 8 + lane / 4);
  }
};

// A lane's inputs of a group: 8 in a row of every 32, of one row of x in eight.
template <int kRowTiles>
struct GroupRows {
  uint4 inputs[kRowTiles][4];

  template <typename T>
  __device__ void load(const LinearArguments<T>& a, int row0, int group) {
    const int lane = threadIdx.x % 32;
    const int first = group * kGroupInputs + lane % 4 * 8;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const int row = row0 + 8 * r + lane / 4;
      const T* from = a.x + static_cast<int64_t>(row) * a.inputs + first;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        inputs[r][j] = row < a.rows && first + 32 * j < a.inputs
                           ? __ldg(reinterpret_cast<const uint4*>(from + 32 * j))
                           : make_uint4(0, 0, 0, 0);
    }
  }
};

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <int kRowTiles>
using TileSums = float[kRowTiles][4];

// sums += scales * (codes - zeros) x of one group.
template <typename T, int kRowTiles>
__device__ __forceinline__ void add_group(TileSums<kRowTiles>& sums, const TileGroup& weights,
                                          const GroupRows<kRowTiles>& rows) {
  const Nibbles<T> nibbles(weights.zeros & 0xFFu, weights.zeros >> 8);
  TileSums<kRowTiles> group{};
#pragma unroll
  for (int step = 0; step < kGroupInputs / 16; ++step) {
    uint32_t a[4];
    nibbles.convert(word_of(weights.codes[step / 4], step % 4), a);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const uint4& x = rows.inputs[r][step / 2];
      multiply_add<T>(group[r], a, word_of(x, step % 2 * 2), word_of(x, step % 2 * 2 + 1));
    }
  }
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[r][i] += (i < 2 ? weights.scales.x : weights.scales.y) * group[r][i];
}

// Leaves the warp's sums in `shared`, (row of x, output of the block).
template <int kRowTiles>
__device__ __forceinline__ void share_sums(const TileSums<kRowTiles> (&sums)[kTilesPerWarp],
                                           const WorkShape& shape, int tile_warp, float* shared) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int p = 0; p < kTilesPerWarp; ++p)
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 8 * r + lane % 4 * 2 + i % 2;
        const int output = (tile_warp * kTilesPerWarp + p) * kOutputs + lane / 4 + i / 2 * 8;
        shared[row * shape.stride() + output] = sums[p][r][i];
      }
}

__device__ __forceinline__ void store(__half* to, float value) { *to = __float2half_rn(value); }
__device__ __forceinline__ void store(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}

// Adds the warps' sums, and those of the cluster's blocks, and writes the outputs.
template <typename T, int kRowTiles>
__device__ __forceinline__ void finish(const LinearArguments<T>& a, int row0, int output0,
                                       float* shared) {
  namespace cg = cooperative_groups;
  const WorkShape& shape = a.shape;
  const int outputs = shape.outputs(), stride = shape.stride();
  const int count = 8 * kRowTiles * outputs, part = 8 * kRowTiles * stride;
  const auto write = [&](int i, float total) {
    const int row = row0 + i / outputs, output = output0 + i % outputs;
    if (row >= a.rows || output >= a.weights.outputs) return;
    store(a.y + static_cast<int64_t>(row) * a.weights.outputs + output,
          total + (a.weights.bias ? a.weights.bias[output] : 0.0f));
  };
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    float* const first = shared + i / outputs * stride + i % outputs;
    float total = *first;
    for (int w = 1; w < shape.group_warps; ++w) total += first[w * part];
    if (shape.splits == 1)
      write(i, total);
    else
      *first = total;
  }
#if __CUDA_ARCH__ >= 900
  if (shape.splits == 1) return;
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const int rank = static_cast<int>(cluster.block_rank()), share = count / shape.splits;
  for (int i = rank * share + threadIdx.x; i < (rank + 1) * share; i += blockDim.x) {
    float* const mine = shared + i / outputs * stride + i % outputs;
    float total = *cluster.map_shared_rank(mine, 0);
    for (int r = 1; r < shape.splits; ++r) total += *cluster.map_shared_rank(mine, r);
    write(i, total);
  }
  cluster.sync();  // the other blocks have read this one's memory
#endif
}

template <typename T, int kRowTiles>
__global__ void __launch_bounds__(32 * kMostWarps, 1) linear_w4a16(const LinearArguments<T> a) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ float shared[];
  const FragmentWeights& w = a.weights;
  const int splits = a.shape.splits, step = a.shape.group_warps;
  const int warp = threadIdx.x / 32, group_warp = warp % step, tile_warp = warp / step;
  const int rank = blockIdx.x % splits, row0 = blockIdx.y * 8 * kRowTiles;
  const int tile0 = blockIdx.x / splits * a.shape.tile_warps * kTilesPerWarp;
  const int groups = static_cast<int>(w.groups);
  const int first = groups * rank / splits + group_warp, end = groups * (rank + 1) / splits;

  TileGroup weights[2][kTilesPerWarp];  // of this group and of the next one
  const auto load = [&](int place, int group) {
#pragma unroll
    for (int p = 0; p < kTilesPerWarp; ++p) {
      const int tile = tile0 + tile_warp * kTilesPerWarp + p;
      if (group < end && tile < w.tiles) weights[place][p].load(w, tile, group);
    }
  };
  for (int place = 0; place < 2; ++place)
    for (int p = 0; p < kTilesPerWarp; ++p) weights[place][p] = {};
  load(0, first);
  load(1, first + step);
  TileSums<kRowTiles> sums[kTilesPerWarp] = {};
  for (int group = first; group < end; group += 2 * step) {
#pragma unroll
    for (int place = 0; place < 2; ++place) {
      const int here = group + place * step;
      if (here >= end) break;
      GroupRows<kRowTiles> rows;
      rows.load(a, row0, here);
#pragma unroll
      for (int p = 0; p < kTilesPerWarp; ++p)
        add_group<T, kRowTiles>(sums[p], weights[place][p], rows);
      load(place, here + 2 * step);
    }
  }
  share_sums<kRowTiles>(sums, a.shape, tile_warp,
                        shared + group_warp * 8 * kRowTiles * a.shape.stride());
  finish<T, kRowTiles>(a, row0, tile0 * kOutputs, shared);
#endif
}

int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  GSSLAM_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

// The shape with the fewest bytes through an SM, weights and 16 rows of x, counted in units of the
// 1 KB of a tile's weights of a group. Blocks of a cluster share the groups, so that each reads a
// part of x only. It must not depend on the number of rows: bytes would.
WorkShape choose_shape(const FragmentWeights& w, int device) {
  constexpr int64_t kRowsOfGroup = 4, kBlock = 8, kCluster = 8;
  const int64_t places = device_attribute(cudaDevAttrMultiProcessorCount, device);
  const bool clusters = device_attribute(cudaDevAttrComputeCapabilityMajor, device) >= 9;
  WorkShape best{};
  int64_t least = 0;
  for (int splits = 1; splits <= (clusters ? 4 : 1); splits *= 2)
    for (int tile_warps = 1; tile_warps <= 4; tile_warps *= 2) {
      const int64_t tiles = tile_warps * kTilesPerWarp;
      const int64_t groups = (w.groups + splits - 1) / splits;
      const int64_t blocks = (w.tiles + tiles - 1) / tiles * splits;
      const int64_t cost = (blocks + places - 1) / places *
                           ((tiles + kRowsOfGroup) * groups + kBlock + (splits > 1 ? kCluster : 0));
      if (least != 0 && cost >= least) continue;
      least = cost;
      const int64_t group_warps = std::min<int64_t>(groups, kMostWarps / tile_warps);
      best = {splits, tile_warps, static_cast<int>(group_warps)};
    }
  return best;
}

template <typename T, int kRowTiles>
void launch(const LinearArguments<T>& a, cudaStream_t stream) {
  const WorkShape& shape = a.shape;
  const int64_t tiles = shape.tile_warps * kTilesPerWarp, rows = 8 * kRowTiles;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(shape.splits), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((a.weights.tiles + tiles - 1) / tiles * shape.splits),
                        static_cast<unsigned>((a.rows + rows - 1) / rows));
  config.blockDim = static_cast<unsigned>(32 * shape.tile_warps * shape.group_warps);
  config.dynamicSmemBytes =
      sizeof(float) * static_cast<size_t>(shape.group_warps * rows * shape.stride());
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = shape.splits > 1 ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, linear_w4a16<T, kRowTiles>, a), "launch of linear_w4a16",
             __FILE__, __LINE__);
}

template <typename T>
void linear(const FragmentWeights& weights, const void* x, int64_t rows, int64_t inputs, void* y,
            int device, cudaStream_t stream) {
  const LinearArguments<T> a{
      weights, choose_shape(weights, device), static_cast<const T*>(x), static_cast<T*>(y), rows,
      inputs};
  if (rows <= 8)
    launch<T, 1>(a, stream);
  else
    launch<T, 2>(a, stream);
}

}  // namespace

void cuda_linear(const FragmentWeights& weights, bool bfloat16, const void* x, int64_t rows,
                 int64_t inputs, void* y, int device, cudaStream_t stream) {
  if (rows == 0) return;
  const DeviceGuard guard(device);
  if (device_attribute(cudaDevAttrComputeCapabilityMajor, device) < 8)
    throw CudaError("the 4-bit linear layer needs a GPU of compute capability 8.0 or more");
  if (bfloat16)
    linear<__nv_bfloat16>(weights, x, rows, inputs, y, device, stream);
  else
    linear<__half>(weights, x, rows, inputs, y, device, stream);
}

}  // namespace gsslam
