// SPDX-License-Identifier: Apache-2.0
// mla::DeviceTimer by CUDA events and graphs.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

#include "common/check.hpp"
#include "mla/device_bench.hpp"
#include "mla/error.hpp"
#include "probe/table.hpp"

namespace mla {
namespace {

class CudaGraph final : public CapturedWork {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    if (status != cudaSuccess) kernels::throw_cuda_error(status, "cudaGraphInstantiate");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(exec_); }
  [[nodiscard]] cudaGraphExec_t exec() const noexcept { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// Holds a stream back until all work of a sample is put on it, so that no sample waits for a busy host (docs/measurement.md
/// has what that changes).
class Gate {
 public:
  Gate() {
    void* word = nullptr;
    MLA_CHECK_CUDA(cudaHostAlloc(&word, sizeof(std::uint32_t), cudaHostAllocMapped));
    word_ = static_cast<volatile std::uint32_t*>(word);
    *word_ = ticket_;
    MLA_CHECK_CUDA(cudaHostGetDevicePointer(&word, word, 0));
    seen_by_device_ = static_cast<const volatile std::uint32_t*>(word);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { cudaFreeHost(const_cast<std::uint32_t*>(word_)); }

  void close(cudaStream_t stream) {
    kernels::probe::table().hold(seen_by_device_, ++ticket_, kMostCycles, stream);
  }
  void open() noexcept { *word_ = ticket_; }

 private:
  /// Some 10 ms. The host may find no room for more work before the gate is open; then it goes by itself.
  static constexpr std::int64_t kMostCycles = 20'000'000;
  volatile std::uint32_t* word_ = nullptr;
  const volatile std::uint32_t* seen_by_device_ = nullptr;
  std::uint32_t ticket_ = 0;
};

class CudaTimer final : public DeviceTimer {
 public:
  explicit CudaTimer(int ordinal) : ordinal_(made_current(ordinal)) {
    MLA_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MLA_CHECK_CUDA(cudaEventCreate(&start_));
    MLA_CHECK_CUDA(cudaEventCreate(&stop_));
  }
  ~CudaTimer() override {
    cudaEventDestroy(stop_);
    cudaEventDestroy(start_);
    cudaStreamDestroy(stream_);
  }

  Stream stream() const noexcept override { return {stream_}; }

  std::unique_ptr<CapturedWork> capture(const std::function<void()>& enqueue) override {
    MLA_CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);  // whatever was captured is no good
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    if (status != cudaSuccess || graph == nullptr) {
      cudaGetLastError();
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("it cannot be captured in a CUDA graph: {}", cudaGetErrorString(status)));
    }
    auto work = std::make_unique<CudaGraph>(graph);
    MLA_CHECK_CUDA(cudaGraphUpload(work->exec(), stream_));
    return work;
  }

  double seconds(const std::function<void()>& enqueue, const std::function<void()>& meanwhile) override {
    MLA_CHECK_CUDA(cudaStreamSynchronize(stream_));
    MLA_CHECK_CUDA(cudaEventRecord(start_, stream_));
    enqueue();
    MLA_CHECK_CUDA(cudaEventRecord(stop_, stream_));
    return elapsed(meanwhile);
  }

  double seconds(CapturedWork& work, int replays, const std::function<void()>& meanwhile) override {
    const cudaGraphExec_t exec = static_cast<CudaGraph&>(work).exec();
    MLA_CHECK_CUDA(cudaStreamSynchronize(stream_));
    // Not timed: while the host enqueues the rest the card is as busy as under it, since after an idle wait a card at its
    // power limit is faster than it stays.
    MLA_CHECK_CUDA(cudaGraphLaunch(exec, stream_));
    gate_.close(stream_);
    MLA_CHECK_CUDA(cudaEventRecord(start_, stream_));
    for (int i = 0; i < replays; ++i) MLA_CHECK_CUDA(cudaGraphLaunch(exec, stream_));
    MLA_CHECK_CUDA(cudaEventRecord(stop_, stream_));
    gate_.open();
    return elapsed(meanwhile);
  }

  std::string bus_id() const override {
    std::array<char, 32> text{};
    MLA_CHECK_CUDA(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal_));
    return text.data();
  }

  std::size_t free_bytes() const override {
    std::size_t free_now = 0;
    std::size_t total = 0;
    MLA_CHECK_CUDA(cudaMemGetInfo(&free_now, &total));
    return free_now;
  }

 private:
  /// The gate's memory is to be on this device, too.
  static int made_current(int ordinal) {
    MLA_CHECK_CUDA(cudaSetDevice(ordinal));
    return ordinal;
  }

  double elapsed(const std::function<void()>& meanwhile) const {
    if (meanwhile) meanwhile();
    MLA_CHECK_CUDA(cudaEventSynchronize(stop_));
    float milliseconds = 0;
    MLA_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  int ordinal_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  Gate gate_;
};

}  // namespace

std::unique_ptr<DeviceTimer> make_device_timer(const Device& device) {
  if (device.vendor != "nvidia" || device.ordinal < 0) {
    throw Error(ErrorCode::kDevice, fmt::format("'{}' is no GPU that CUDA can time on", device.name));
  }
  return std::make_unique<CudaTimer>(device.ordinal);
}

void fill_bytes(std::byte* data, std::size_t bytes, std::byte value, Stream stream) {
  if (bytes == 0) return;
  MLA_CHECK_CUDA(
      cudaMemsetAsync(data, std::to_integer<int>(value), bytes, static_cast<cudaStream_t>(stream.handle)));
}

}  // namespace mla
