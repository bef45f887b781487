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
  offer(64, PassLayout<kPass, 64, kTileFor<kPass, 64>>(d, e).bytes);
  offer(128, PassLayout<kPass, 128, kTileFor<kPass, 128>>(d, e).bytes);
  offer(256, PassLayout<kPass, 256, kTileFor<kPass, 256>>(d, e).bytes);
  offer(384, PassLayout<kPass, 384, kTileFor<kPass, 384>>(d, e).bytes);
  offer(512, PassLayout<kPass, 512, kTileFor<kPass, 512>>(d, e).bytes);
  return best;
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
