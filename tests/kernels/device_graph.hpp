// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <stdexcept>

#include "mla/backend.hpp"

namespace mla::testing {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(fmt::format("{}: {}", what, cudaGetErrorString(status)));
}

/// What `enqueue(Stream)` enqueues, captured in a CUDA graph. The runtime is the test's own copy: what a
/// caller of the library would capture with.
class DeviceGraph {
 public:
  template <class Enqueue>
  explicit DeviceGraph(Enqueue enqueue) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin capture");
    enqueue(Stream{stream_});
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "end capture");
    check_cuda(cudaGraphInstantiate(&executable_, graph, 0), "instantiate");
    cudaGraphDestroy(graph);
  }
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  ~DeviceGraph() {
    cudaGraphExecDestroy(executable_);
    cudaStreamDestroy(stream_);
  }
  /// Enqueues it once more, on its own stream.
  void start() { check_cuda(cudaGraphLaunch(executable_, stream_), "launch"); }
  void wait() { check_cuda(cudaStreamSynchronize(stream_), "replay"); }
  /// Runs it once and waits.
  void replay() {
    start();
    wait();
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace mla::testing
