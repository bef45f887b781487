// The CUDA rasteriser: a plan that owns its buffers, so that a loop of passes allocates nothing.
#pragma once

#include <cuda_runtime.h>

#include "common/cuda_graph.h"
#include "common/cuda_memory.h"
#include "rasterize/cuda_plan.h"
#include "rasterize/sphere_matrix.h"

namespace gsslam {

// What room is made for; flags.
enum RasterUse : unsigned {
  kForImage = 0,
  kForTracking = 1,  // normal equations, for which lists are gone through as a whole
  kForBackward = 2,
  // Launches cover all the spheres that there is room for, not only those that there are: a graph
  // captured with them goes on being of use while the map grows.
  kForGraph = 4,
};

class CudaRasterizer {
 public:
  CudaRasterizer(int num_features, int device);

  // Projects, bins and sorts the spheres, makes room where it lacks, and waits for the result: the
  // number of spheres that reach the image.
  int64_t project(const SphereMatrix& spheres, const View& view, cudaStream_t stream);
  // The same without waiting: where there is no room, nothing is drawn until the next project.
  void queue_project(const SphereMatrix& spheres, const View& view, cudaStream_t stream);

  // Writes the (5 + D, height, width) image of the projected spheres.
  void forward(float* image, cudaStream_t stream);

  struct BackwardArguments {
    const float* image;
    const float* grad_image;
    const float* error;      // (height, width) or null: no statistics
    float* grad_parameters;  // (8 + D, capacity), added to
    float* statistics;       // (kStatistics, capacity) or null: see keep_statistics
    float decay;             // of the statistics kept
    double* grad_pose;       // (12,) on the host: dL / d the upper 3 x 4 of T_camera_world
  };
  // Waits for the gradient of the pose.
  void backward(const SphereMatrix& spheres, const BackwardArguments& arguments,
                cudaStream_t stream);

  // The parts of the above, for fused steps: no allocation and no waiting.
  // Makes room for the spheres on an image of this size.
  void prepare(const SphereMatrix& spheres, int width, int height, unsigned uses,
               cudaStream_t stream);
  // Gives the device the pass's state. Kernels may set another view.
  void begin_pass(int64_t count, const View& view, float margin, cudaStream_t stream) const;
  void reserve_sums(int stride);        // room for so many sums of each cell
  void bin(cudaStream_t stream) const;  // of what the device's state says
  // Makes room for what an overflowed pass needed; returns whether there was one. Waits.
  bool grow(cudaStream_t stream);
  bool grow(const RasterState& state);
  CudaBackward backward_buffers(const float* image, const float* grad_image,
                                const float* error) const;
  double* pose_partials() const { return pose_partials_.get(); }

  const RasterPlan& plan() const { return plan_; }
  int device() const { return device_; }
  size_t bytes() const;  // of device memory

 private:
  void reserve_spheres(const SphereMatrix& spheres);
  void reserve_entries(uint64_t entries, uint64_t cells);
  int sum_stride(const float* error) const;  // numbers of a slot

  int num_features_, device_;
  int segment_blocks_ = 0;
  bool has_blended_ = false;  // since the last projection
  int sum_stride_ = 0;
  RasterPlan plan_{};
  DeviceBuffer<RasterState> state_;
  DeviceBuffer<Splat> splats_;
  DeviceBuffer<PoseSplat> pose_splats_;
  DeviceBuffer<float2> listed_at_;
  DeviceBuffer<float> radius2_, features_, sums_;
  DeviceBuffer<uint32_t> cell_counts_, first_cell_, block_cells_, warp_cells_, tile_next_,
      tile_start_, tile_order_, cell_words_;
  DeviceBuffer<uint64_t> keys_, sort_space_;
  DeviceBuffer<CellItem> items_;
  DeviceBuffer<CellList> cell_lists_;
  DeviceBuffer<Segment> segments_;
  DeviceBuffer<uint32_t> segment_progress_;
  DeviceBuffer<float> segment_pixels_, scratch_image_;
  DeviceBuffer<double> pose_partials_;
};

// The kernels. All read the plan's state on the device and do nothing after an overflow.
void launch_project(const RasterPlan& plan, cudaStream_t stream);
// Projects again with the lists as they are, and sets the condition if they are stale.
void launch_refresh(const RasterPlan& plan, const Condition& make_lists, cudaStream_t stream);
void launch_scan(const RasterPlan& plan, cudaStream_t stream);
void launch_fill(const RasterPlan& plan, cudaStream_t stream);
void launch_sort(const RasterPlan& plan, cudaStream_t stream);
void launch_forward(const RasterPlan& plan, float* image, cudaStream_t stream);
void launch_backward(const RasterPlan& plan, const CudaBackward& back, cudaStream_t stream);
// Adds the slots of each sphere up and applies the chain rule. The pose's sums over each block of
// kGatherThreads spheres go to pose_partials, (blocks, kPoseSums).
void launch_gather(const RasterPlan& plan, const CudaBackward& back, float* grad_parameters,
                   float* statistics, float decay, double* pose_partials, cudaStream_t stream);
// Adds `count` rows of kPoseSums numbers up, in order.
void launch_sum_pose(const double* partials, size_t count, double* total, cudaStream_t stream);

}  // namespace gsslam
