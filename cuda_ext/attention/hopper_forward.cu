#include <algorithm>

#include "attention/cuda_attention_launch.cuh"
#include "attention/hopper_forward.cuh"
#include "attention/hopper_forward.h"
#include "attention/hopper_tensor.h"
#include "common/cuda_memory.h"

namespace gsslam {
namespace {

// Output and log-sum-exp of the rows of a split block out of those of its parts, in order; a warp
// for each row.
template <typename T, int kChunk>
__global__ void __launch_bounds__(256) combine_parts(const __grid_constant__ HopperForward a) {
  constexpr int kWidth = kChunk + 2;
  const int lane = threadIdx.x % 32, splits = a.work.splits;
  const int64_t block = blockIdx.x / (kHopperRows / 8);
  const int row = blockIdx.x % (kHopperRows / 8) * 8 + threadIdx.x / 32;
  const HopperUnit u =
      HopperUnit::of<HopperLayout<kChunk>::kTile>(a, a.work.whole + block * splits);
  if (u.row + row >= a.shape.queries) return;
  const float* const parts = a.parts + (block * splits * kHopperRows + row) * kWidth;
  constexpr int kStep = kHopperRows * kWidth;
  float most = -INFINITY, total = 0;
  for (int i = 0; i < splits; ++i) most = fmaxf(most, parts[i * kStep + kChunk]);
  const float reference = most == -INFINITY ? 0 : most;
  for (int i = 0; i < splits; ++i) total += exp2f(kLog2E * (parts[i * kStep + kChunk] - reference));
  const float inverse = total == 0 ? 0 : 1 / total;
  const int e = static_cast<int>(a.shape.value_dim), first = u.chunk * kChunk;
  const int64_t head_row = (u.item * a.shape.heads + u.head) * a.shape.queries + u.row + row;
  for (int c = 2 * lane; c < kChunk && first + c < e; c += 64) {
    float x = 0, y = 0;
    for (int i = 0; i < splits; ++i) {
      const float weight = exp2f(kLog2E * (parts[i * kStep + kChunk] - reference)) * inverse;
      x += weight * parts[i * kStep + c];
      y += weight * parts[i * kStep + c + 1];
    }
    store_pair(static_cast<T*>(a.output) + head_row * e + first + c, x, y);
  }
  if (lane == 0 && u.chunk == 0)
    a.log_sum_exp[head_row] = total == 0 ? -INFINITY : reference + logf(total);
}

// Value columns of a unit: as few chunks as hold them all, evenly filled.
int chunk_of(int64_t value_dim) {
  const int64_t chunks = (value_dim + 255) / 256;
  return static_cast<int>(((value_dim + chunks - 1) / chunks + 63) / 64 * 64);
}

// Parts into which the blocks of a last, partly filled turn are split: those that end first, where
// a part costs about as much as half a tile beside its share.
HopperWork work_of(const AttentionShape& s, int chunk, int device) {
  constexpr int kMostSplits = 16;
  HopperWork w{};
  w.row_blocks = (s.queries + kHopperRows - 1) / kHopperRows;
  w.chunks = (s.value_dim + chunk - 1) / chunk;
  w.blocks = s.batch * s.heads * w.row_blocks * w.chunks;
  const int64_t places = device_attribute(cudaDevAttrMultiProcessorCount, device);
  const int64_t tile = chunk <= 64 ? 128 : 64, tiles = (s.keys + tile - 1) / tile;
  const int64_t rest = w.blocks % places;
  w.whole = w.blocks - rest;
  w.splits = 1;
  int64_t least = 0;
  for (int splits = 1; rest > 0 && splits <= kMostSplits && splits <= tiles; ++splits) {
    const int64_t turns = (rest * splits + places - 1) / places;
    // In half tiles; adding up parts takes as long as four tiles.
    const int64_t cost = turns * (2 * ((tiles + splits - 1) / splits) + 1) + (splits > 1 ? 8 : 0);
    if (splits > 1 && cost >= least) continue;
    w.splits = splits;
    least = cost;
  }
  if (w.splits == 1) w.whole = w.blocks;
  return w;
}

template <int kChunk>
int places_of(const AttentionShape& s, int device) {
  return HopperLayout<kChunk>(s.dim).places(shared_limit(device));
}

int places_of(const AttentionShape& s, int chunk, int device) {
  switch (chunk) {
    case 64:
      return places_of<64>(s, device);
    case 128:
      return places_of<128>(s, device);
    case 192:
      return places_of<192>(s, device);
    default:
      return places_of<256>(s, device);
  }
}

template <typename T, int kChunk>
void launch(const HopperForward& a, int device, cudaStream_t stream) {
  const auto kernel =
      a.shape.dim <= 32 ? hopper_forward<T, kChunk, 2> : hopper_forward<T, kChunk, 4>;
  const int bytes = HopperLayout<kChunk>(a.shape.dim).bytes(a.places);
  GSSLAM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t places = device_attribute(cudaDevAttrMultiProcessorCount, device);
  kernel<<<static_cast<unsigned>(std::min(a.work.units(), places)), kHopperThreads, bytes,
           stream>>>(a);
  GSSLAM_LAUNCHED(hopper_forward);
  const int64_t split = a.work.blocks - a.work.whole;
  if (split == 0) return;
  combine_parts<T, kChunk><<<static_cast<unsigned>(split * (kHopperRows / 8)), 256, 0, stream>>>(a);
  GSSLAM_LAUNCHED(combine_parts);
}

template <typename T>
void launch(const HopperForward& a, int chunk, int device, cudaStream_t stream) {
  switch (chunk) {
    case 64:
      return launch<T, 64>(a, device, stream);
    case 128:
      return launch<T, 128>(a, device, stream);
    case 192:
      return launch<T, 192>(a, device, stream);
    default:
      return launch<T, 256>(a, device, stream);
  }
}

}  // namespace

bool hopper_forward_takes(const AttentionShape& s, int device) {
  constexpr int64_t kFewestQueries = 64;  // fewer would leave most of a block's rows empty
  if (device_attribute(cudaDevAttrComputeCapabilityMajor, device) != 9) return false;
  return s.queries >= kFewestQueries && s.keys > 0 && s.dim > 0 && s.value_dim > 0 && s.batch > 0 &&
         places_of(s, chunk_of(s.value_dim), device) > 0;
}

int64_t hopper_forward_parts(const AttentionShape& s, int device) {
  const int chunk = chunk_of(s.value_dim);
  const HopperWork w = work_of(s, chunk, device);
  return (w.units() - w.whole) * kHopperRows * (chunk + 2);
}

void hopper_forward(const CudaAttentionInput& input, void* output, float* log_sum_exp, float* parts,
                    int device, cudaStream_t stream) {
  const AttentionShape& s = input.shape;
  const int chunk = chunk_of(s.value_dim);
  const int tile = chunk <= 64 ? 128 : 64;
  HopperForward a{};
  a.shape = s;
  a.mask = input.mask;
  a.scale = input.scale;
  a.work = work_of(s, chunk, device);
  a.places = places_of(s, chunk, device);
  a.output = output;
  a.log_sum_exp = log_sum_exp;
  a.parts = parts;
  const bool half = !input.bfloat16;
  a.query = tensor_map(input.query, !half, s.batch * s.heads, s.queries, s.dim, kHopperRows);
  a.key = tensor_map(input.key, !half, s.batch * s.kv_heads, s.keys, s.dim, tile);
  a.value = tensor_map(input.value, !half, s.batch * s.kv_heads, s.keys, s.value_dim, tile);
  if (half)
    launch<__half>(a, chunk, device, stream);
  else
    launch<__nv_bfloat16>(a, chunk, device, stream);
}

}  // namespace gsslam
