// A captured sequence of kernels, launched as one.
#pragma once

#include <cstring>
#include <utility>

#include "common/cuda_check.h"

namespace gsslam {

// A stream of the same priority, to be destroyed by the caller.
inline cudaStream_t stream_like(cudaStream_t other) {
  int priority;
  cudaStream_t stream;
  GSSLAM_CUDA(cudaStreamGetPriority(other, &priority));
  GSSLAM_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
  return stream;
}

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

  // Captures what `work` launches on a stream of its own, of the priority of `like`, which the
  // kernels keep. They must have been loaded, by running them once.
  template <typename Work>
  void capture(cudaStream_t like, Work work) {
    reset();
    cudaStream_t stream = stream_like(like);
    cudaGraph_t graph = nullptr;
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

// A condition as kernels set it; outside of a captured graph there is none to set.
struct Condition {
  cudaGraphConditionalHandle handle;
  bool exists;

#ifdef __CUDACC__
  __device__ void set(unsigned value) const {
    if (exists) cudaGraphSetConditional(handle, value);
  }
#endif
};

// A condition that kernels of the graph being captured on a stream set, by cudaGraphSetConditional.
inline cudaGraphConditionalHandle make_condition(cudaStream_t stream, unsigned at_launch) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph;
  GSSLAM_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph));
  cudaGraphConditionalHandle handle;
  GSSLAM_CUDA(
      cudaGraphConditionalHandleCreate(&handle, graph, at_launch, cudaGraphCondAssignDefault));
  return handle;
}

// Captures what `work` launches as a body that runs if, or while, the condition is not zero.
template <typename Work>
void capture_conditional(cudaStream_t stream, cudaGraphConditionalHandle handle,
                         cudaGraphConditionalNodeType type, Work work) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph;
  const cudaGraphNode_t* before;
  const cudaGraphEdgeData* edges;
  size_t count;
  GSSLAM_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &before, &edges, &count));
  cudaGraphNodeParams parameters{};
  parameters.type = cudaGraphNodeTypeConditional;
  parameters.conditional.handle = handle;
  parameters.conditional.type = type;
  parameters.conditional.size = 1;
  cudaGraphNode_t node;
  GSSLAM_CUDA(cudaGraphAddNode(&node, graph, before, edges, count, &parameters));
  cudaStream_t inside = stream_like(stream);
  cudaGraph_t body = parameters.conditional.phGraph_out[0];
  try {
    GSSLAM_CUDA(cudaStreamBeginCaptureToGraph(inside, body, nullptr, nullptr, 0,
                                              cudaStreamCaptureModeThreadLocal));
    work(inside);
    GSSLAM_CUDA(cudaStreamEndCapture(inside, &body));
  } catch (...) {
    cudaStreamEndCapture(inside, &body);
    cudaStreamDestroy(inside);
    throw;
  }
  GSSLAM_CUDA(cudaStreamDestroy(inside));
  GSSLAM_CUDA(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                  cudaStreamSetCaptureDependencies));
}

}  // namespace gsslam
