// Choice and launch of a pass: the widest chunk that covers the sums and fits the shared memory.
#pragma once

#include <string>

#include "attention/cuda_attention.h"
#include "attention/cuda_attention_kernel.cuh"
#include "common/cuda_check.h"

namespace gsslam {

inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  GSSLAM_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

inline int shared_limit(int device) {
  if (device_attribute(cudaDevAttrComputeCapabilityMajor, device) < 8)
    throw CudaError("attention needs a GPU of compute capability 8.0 or more; use the CPU");
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

// A chunk of 512 columns leaves room for tiles of 32 rows in the passes with two products.
template <Pass kPass, int kChunk>
inline constexpr int kTileFor = has_second_product(kPass) && kChunk == 512 ? 32 : 64;

template <Pass kPass, int kChunk, typename T>
void launch_chunk(const PassArguments<T>& a, int chunks, int64_t rows, int64_t heads,
                  cudaStream_t stream) {
  constexpr int kTile = kTileFor<kPass, kChunk>;
  const int bytes = PassLayout<kPass, kChunk, kTile>(static_cast<int>(a.shape.dim),
                                                     static_cast<int>(a.shape.value_dim))
                        .bytes;
  const auto kernel = attention_pass<kPass, kChunk, kTile, T>;
  GSSLAM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  constexpr int kRowTile = kRowsFor<kPass, kChunk>;
  const dim3 grid(static_cast<unsigned>((rows + kRowTile - 1) / kRowTile),
                  static_cast<unsigned>(a.shape.batch * heads),
                  static_cast<unsigned>(chunks * a.splits));
  kernel<<<grid, kAttentionThreads, bytes, stream>>>(a);
  GSSLAM_LAUNCHED(attention_pass);
}

struct ChunkChoice {
  int chunk, chunks;  // chunk 0: nothing fits
};

// Fewest chunks first, since every chunk makes the weights anew; then the narrowest.
template <Pass kPass>
ChunkChoice choose_chunk(const AttentionShape& s, int limit) {
  const int d = static_cast<int>(s.dim), e = static_cast<int>(s.value_dim);
  const int columns = has_second_product(kPass) ? d : e;
  ChunkChoice best{0, 0};
  const auto offer = [&](int chunk, int bytes) {
    const int chunks = (columns + chunk - 1) / chunk;
    if (bytes <= limit && (best.chunk == 0 || chunks < best.chunks)) best = {chunk, chunks};
  };
  if (kPass == Pass::output && d <= 64 && e > 256) {  // scores are cheap to make twice
    offer(256, PassLayout<kPass, 256, kTileFor<kPass, 256>>(d, e).bytes);
    return best;
  }
  offer(64, PassLayout<kPass, 64, kTileFor<kPass, 64>>(d, e).bytes);
  offer(128, PassLayout<kPass, 128, kTileFor<kPass, 128>>(d, e).bytes);
  offer(256, PassLayout<kPass, 256, kTileFor<kPass, 256>>(d, e).bytes);
  offer(384, PassLayout<kPass, 384, kTileFor<kPass, 384>>(d, e).bytes);
  offer(512, PassLayout<kPass, 512, kTileFor<kPass, 512>>(d, e).bytes);
  return best;
}

// Parts that the other side's rows are cut into, so that few rows still keep the GPU busy. Times
// are rough, from an H200.
template <Pass kPass>
int pass_splits(const AttentionShape& s, int device) {
  constexpr bool kQueries = rows_are_queries(kPass), kSecond = has_second_product(kPass);
  constexpr double kMicrosecondsPerColumn = 0.006, kBytesPerMicrosecond = 4e6, kAddition = 4;
  constexpr int64_t kMostSplits = 8;
  const ChunkChoice choice = choose_chunk<kPass>(s, shared_limit(device));
  const int64_t rows = kQueries ? s.queries : s.keys, heads = kQueries ? s.heads : s.kv_heads;
  const int64_t others = kQueries ? s.keys : s.queries * s.group();
  const int row_tile =
      kPass == Pass::output && (choice.chunk == 128 || choice.chunk == 256) ? 128 : 64;
  const int64_t blocks = (rows + row_tile - 1) / row_tile * s.batch * heads * choice.chunks;
  const int64_t tiles = (others + 63) / 64;
  if (blocks == 0 || choice.chunk == 0) return 1;
  const int64_t places =
      device_attribute(cudaDevAttrMultiProcessorCount, device) * (choice.chunk <= 128 ? 2 : 1);
  const double width = static_cast<double>(kSecond ? s.dim : s.value_dim);
  const double columns = static_cast<double>(s.dim + (kSecond ? s.value_dim : 0)) + choice.chunk;
  const double part = 8 * static_cast<double>(s.batch * heads * rows) * width;
  int best = 1;
  double least = 0;
  for (int64_t splits = 1; splits <= kMostSplits && splits <= tiles; ++splits) {
    const int64_t turns = (blocks * splits + places - 1) / places * ((tiles + splits - 1) / splits);
    double cost = static_cast<double>(turns) * columns * kMicrosecondsPerColumn * row_tile / 64;
    if (splits > 1) cost += kAddition + static_cast<double>(splits) * part / kBytesPerMicrosecond;
    if (splits > 1 && cost > 0.95 * least) continue;
    best = static_cast<int>(splits);
    least = cost;
  }
  return best;
}

// Floats of the parts of a pass; 0 where it has only one.
template <Pass kPass>
int64_t pass_part_size(const AttentionShape& s, int device) {
  const int splits = pass_splits<kPass>(s, device);
  if (splits == 1) return 0;
  const int64_t rows = rows_are_queries(kPass) ? s.heads * s.queries : s.kv_heads * s.keys;
  const int64_t width = has_second_product(kPass) ? s.dim : s.value_dim + (kPass == Pass::output);
  return splits * s.batch * rows * width;
}

template <Pass kPass, typename T>
void launch_pass(const PassArguments<T>& a, int device, cudaStream_t stream) {
  const AttentionShape& s = a.shape;
  constexpr bool kQueries = rows_are_queries(kPass);
  const int64_t rows = kQueries ? s.queries : s.keys, heads = kQueries ? s.heads : s.kv_heads;
  const ChunkChoice choice = choose_chunk<kPass>(s, shared_limit(device));
  if (rows == 0 || s.batch * heads == 0 || choice.chunks == 0) {
    if (choice.chunk != 0 || rows == 0) return;
    throw CudaError("attention with " + std::to_string(s.dim) + " and " +
                    std::to_string(s.value_dim) +
                    " channels does not fit this GPU's shared memory; use fewer, or the CPU");
  }
  switch (choice.chunk) {
    case 64:
      return launch_chunk<kPass, 64>(a, choice.chunks, rows, heads, stream);
    case 128:
      return launch_chunk<kPass, 128>(a, choice.chunks, rows, heads, stream);
    case 256:
      return launch_chunk<kPass, 256>(a, choice.chunks, rows, heads, stream);
    case 384:
      return launch_chunk<kPass, 384>(a, choice.chunks, rows, heads, stream);
    default:
      return launch_chunk<kPass, 512>(a, choice.chunks, rows, heads, stream);
  }
}

template <typename T>
PassArguments<T> pass_arguments(const CudaAttentionInput& input) {
  PassArguments<T> a{};
  a.shape = input.shape;
  a.mask = input.mask;
  a.scale = input.scale;
  a.query = static_cast<const T*>(input.query);
  a.key = static_cast<const T*>(input.key);
  a.value = static_cast<const T*>(input.value);
  a.splits = 1;
  return a;
}

}  // namespace gsslam
