#include <algorithm>
#include <limits>

#include "rasterize/cuda_rasterizer.h"

namespace gsslam {
namespace {

// What a map's spheres reach on average, out of view or in it; passes tell where it is more.
constexpr uint64_t kEntriesOfSphere = 2, kCellsOfSphere = 6;
constexpr uint64_t kLeastEntries = uint64_t{1} << 16;

constexpr int kSegmentBlocks = 4;  // on a multiprocessor

constexpr uint64_t kMostEntries = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kSphereStep = 4096;

// A slot of the backward pass takes far more than what else there is of a cell, so that room to
// spare is dear, and making new room now and then is not.
uint64_t with_spare(uint64_t size) { return size + size / 8; }

// The same, but no more than can be counted, unless that is too little anyway.
uint64_t room_for(uint64_t size) {
  return std::max(size, std::min(with_spare(size), kMostEntries));
}

// The same in steps, but no more than a map holds.
size_t room_for_spheres(const SphereMatrix& spheres) {
  const uint64_t room = with_spare(spheres.count) / kSphereStep * kSphereStep + kSphereStep;
  return std::max<int64_t>(std::min<int64_t>(room, spheres.capacity), 1);
}

}  // namespace

CudaRasterizer::CudaRasterizer(int num_features, int device)
    : num_features_(num_features), device_(device) {
  const DeviceGuard guard(device);
  state_.reserve(1);
  int processors = 0, threads = 0;
  GSSLAM_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  GSSLAM_CUDA(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device));
  plan_.warp_slots = processors * threads / 64;  // half of what fits without registers in mind
  segment_blocks_ = kSegmentBlocks * processors;
}

void CudaRasterizer::reserve_spheres(const SphereMatrix& spheres) {
  if (splats_.size() && spheres.count <= static_cast<int64_t>(splats_.size())) return;
  const size_t room = room_for_spheres(spheres);
  splats_.reserve(room);
  radius2_.reserve(room);
  cell_counts_.reserve(room);
  first_cell_.reserve(room);
  block_cells_.reserve(blocks_for(room, kBinThreads));
  warp_cells_.reserve(kBinWarps * block_cells_.size());
  if (num_features_) features_.reserve(room * num_features_);
  pose_partials_.reserve(size_t{kPoseSums} * (blocks_for(room, kGatherThreads) + 1));
}

void CudaRasterizer::prepare(const SphereMatrix& spheres, int width, int height, unsigned uses,
                             cudaStream_t stream) {
  if (spheres.count > kMaxSpheres)
    throw CudaError("the CUDA rasteriser draws at most " + std::to_string(kMaxSpheres) +
                    " spheres, not " + std::to_string(spheres.count));
  reserve_spheres(spheres);
  plan_.state = state_.get();
  plan_.parameters = spheres.data;
  plan_.capacity = spheres.capacity;
  plan_.max_count = spheres.count;
  if (uses & kForGraph) plan_.max_count = std::min<int64_t>(spheres.capacity, splats_.size());
  plan_.num_features = num_features_;
  plan_.width = width;
  plan_.height = height;
  plan_.tiles_x = (width + kTile - 1) / kTile;
  plan_.tiles_y = (height + kTile - 1) / kTile;
  const size_t tiles = plan_.tiles();
  const uint64_t count = spheres.count;
  if (uses & kForTracking) {
    pose_splats_.reserve(splats_.size());
    listed_at_.reserve(splats_.size());
  }
  tile_next_.reserve_zeroed(tiles * kCounterStride, stream);
  tile_start_.reserve(tiles + 1);
  tile_order_.reserve(tiles);
  cell_lists_.reserve(kTileCells * tiles);
  // Only images without features are blended in segments; the tracker goes through whole lists.
  if (num_features_ == 0 && !(uses & kForTracking)) {
    segments_.reserve(kMaxSegments);
    segment_progress_.reserve(2 * kMaxSegments);
    segment_pixels_.reserve(size_t{kMaxSegments} * kSegmentPlanes * 32);
  }
  if (uses & kForBackward) reserve_sums(kSums + num_features_);
  reserve_entries(std::max(plan_.max_entries, std::max(kLeastEntries, kEntriesOfSphere * count)),
                  std::max(plan_.max_cells, std::max(kLeastEntries, kCellsOfSphere * count)));
}

void CudaRasterizer::reserve_entries(uint64_t entries, uint64_t cells) {
  if (entries > kMostEntries || cells > kMostEntries)
    throw CudaError("the spheres cover " + std::to_string(entries) + " tiles and " +
                    std::to_string(cells) + " cells, more than 2^32: they are far too large");
  keys_.reserve(entries);
  sort_space_.reserve(entries);
  cell_words_.reserve(cells);
  items_.reserve(cells);
  if (sum_stride_) sums_.reserve(cells * sum_stride_);
  plan_.max_entries = entries;
  plan_.max_cells = cells;
  plan_.splats = splats_.get();
  plan_.radius2 = radius2_.get();
  plan_.features = features_.get();
  plan_.pose_splats = pose_splats_.size() ? pose_splats_.get() : nullptr;
  plan_.listed_at = listed_at_.size() ? listed_at_.get() : nullptr;
  plan_.cell_counts = cell_counts_.get();
  plan_.first_cell = first_cell_.get();
  plan_.block_cells = block_cells_.get();
  plan_.warp_cells = warp_cells_.get();
  plan_.tile_next = tile_next_.get();
  plan_.tile_start = tile_start_.get();
  plan_.tile_order = tile_order_.get();
  plan_.keys = keys_.get();
  plan_.sort_space = sort_space_.get();
  plan_.cell_words = cell_words_.get();
  plan_.items = items_.get();
  plan_.cell_lists = cell_lists_.get();
  if (segments_.size()) {
    plan_.segments = segments_.get();
    plan_.segment_progress = segment_progress_.get();
    plan_.segments_done = segment_progress_.get() + kMaxSegments;
    plan_.segment_pixels = segment_pixels_.get();
    plan_.segment_blocks = segment_blocks_;
  }
}

void CudaRasterizer::bin(cudaStream_t stream) const {
  launch_project(plan_, stream);
  launch_scan(plan_, stream);
  launch_fill(plan_, stream);
  launch_sort(plan_, stream);
}

void CudaRasterizer::reserve_sums(int stride) {
  sum_stride_ = std::max(sum_stride_, stride);
  sums_.reserve(plan_.max_cells * sum_stride_);
}

bool CudaRasterizer::grow(cudaStream_t stream) { return grow(download(plan_.state, stream)); }

bool CudaRasterizer::grow(const RasterState& state) {
  if (!state.overflow) return false;
  reserve_entries(std::max(plan_.max_entries, room_for(state.entries)),
                  std::max(plan_.max_cells, room_for(state.cells)));
  return true;
}

int64_t CudaRasterizer::project(const SphereMatrix& spheres, const View& view,
                                cudaStream_t stream) {
  const DeviceGuard guard(device_);
  RasterState state;
  do {
    queue_project(spheres, view, stream);
    state = download(plan_.state, stream);
  } while (grow(state));
  return state.visible;
}

void CudaRasterizer::queue_project(const SphereMatrix& spheres, const View& view,
                                   cudaStream_t stream) {
  const DeviceGuard guard(device_);
  const unsigned uses = pose_splats_.size() ? kForTracking : kForImage;
  prepare(spheres, view.width, view.height, uses, stream);
  begin_pass(spheres.count, view, 0.0f, stream);
  bin(stream);
  has_blended_ = false;
}

void CudaRasterizer::begin_pass(int64_t count, const View& view, float margin,
                                cudaStream_t stream) const {
  RasterState state{};
  state.view = view;
  state.count = static_cast<uint32_t>(count);
  state.margin = margin;
  state.stale = 1;
  upload(plan_.state, state, stream);
}

void CudaRasterizer::forward(float* image, cudaStream_t stream) {
  const DeviceGuard guard(device_);
  launch_forward(plan_, image, stream);
  has_blended_ = true;
}

int CudaRasterizer::sum_stride(const float* error) const {
  return kSums + num_features_ + (error ? kStatistics : 0);
}

CudaBackward CudaRasterizer::backward_buffers(const float* image, const float* grad_image,
                                              const float* error) const {
  return {image, grad_image, error, sums_.get(), sum_stride(error)};
}

void CudaRasterizer::backward(const SphereMatrix& spheres, const BackwardArguments& arguments,
                              cudaStream_t stream) {
  const DeviceGuard guard(device_);
  plan_.parameters = spheres.data;  // it may have moved; its values are those projected
  reserve_sums(sum_stride(arguments.error));
  const CudaBackward back =
      backward_buffers(arguments.image, arguments.grad_image, arguments.error);
  if (plan_.segments && !has_blended_) {  // segments start from what the forward pass left
    scratch_image_.reserve(kPlaneFeature * plan_.pixels());
    forward(scratch_image_.get(), stream);
  }
  launch_backward(plan_, back, stream);
  launch_gather(plan_, back, arguments.grad_parameters, arguments.statistics, arguments.decay,
                pose_partials_.get(), stream);
  const size_t blocks = blocks_for(plan_.max_count, kGatherThreads);
  double* const total = pose_partials_.get() + pose_partials_.size() - kPoseSums;
  launch_sum_pose(pose_partials_.get(), blocks, total, stream);
  GSSLAM_CUDA(cudaMemcpyAsync(arguments.grad_pose, total, kPoseSums * sizeof(double),
                              cudaMemcpyDeviceToHost, stream));
  GSSLAM_CUDA(cudaStreamSynchronize(stream));
}

size_t CudaRasterizer::bytes() const {
  return sizeof(RasterState) + splats_.size() * sizeof(Splat) +
         pose_splats_.size() * sizeof(PoseSplat) + listed_at_.size() * sizeof(float2) +
         4 * (radius2_.size() + features_.size() + sums_.size() + cell_counts_.size() +
              first_cell_.size() + block_cells_.size() + warp_cells_.size() + tile_next_.size() +
              tile_start_.size() + tile_order_.size() + cell_words_.size()) +
         8 * (keys_.size() + sort_space_.size() + items_.size() + pose_partials_.size()) +
         sizeof(CellList) * cell_lists_.size() + sizeof(Segment) * segments_.size() +
         4 * (segment_progress_.size() + segment_pixels_.size());
}

}  // namespace gsslam
