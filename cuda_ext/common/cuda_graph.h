// A captured sequence of kernels, launched as one.
#pragma once

#include <cstring>
#include <utility>

#include "common/cuda_check.h"

namespace gsslam {

class CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph() { reset(); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void reset() {
    if (graph_) cudaGraphExecDestroy(std::exchange(graph_, nullptr));
  }
  bool ready() const { return graph_ != nullptr; }

  // Captures what `work` launches on a stream of its own. The kernels must have been loaded, by
  // running them once.
  template <typename Work>
  void capture(Work work) {
    reset();
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    GSSLAM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GSSLAM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      work(stream);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      cudaStreamDestroy(stream);
      throw;
    }
    GSSLAM_CUDA(cudaStreamEndCapture(stream, &graph));
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    GSSLAM_CUDA(made);
  }
  void launch(cudaStream_t stream) const { GSSLAM_CUDA(cudaGraphLaunch(graph_, stream)); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace gsslam
