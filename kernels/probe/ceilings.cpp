// SPDX-License-Identifier: Apache-2.0
// What a GPU reaches at best: measured, not looked up.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/current_device.hpp"
#include "gemm/lt.hpp"
#include "mla/device_bench.hpp"
#include "mla/memory.hpp"
#include "probe/table.hpp"
#include "probe_images.inc"

namespace mla {
namespace kernels::probe {

const Table& table() {
  return current_image<Table>(kImages);
}

}  // namespace kernels::probe

void fill_rows(const RandomRows& rows, Stream stream) {
  if (rows.dtype != DType::kBF16 && rows.dtype != DType::kF16 && rows.dtype != DType::kF32 &&
      rows.dtype != DType::kE4M3) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("random rows of {} are not made; bf16, f16, f32 and e4m3 are", name_of(rows.dtype)));
  }
  if (rows.rows > 0 && rows.count > 0) kernels::probe::table().fill(rows, stream.handle);
}

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kReadBytes = std::size_t{4} << 30;
constexpr double kHeatSeconds = 0.1;
constexpr int kTries = 20;
constexpr int kBlocksPerSm = 8;
constexpr std::int64_t kMatrixSize = 8192;

/// Device memory for the scope.
class Scratch {
 public:
  Scratch(DeviceMemory& memory, std::size_t bytes)
      : memory_(memory), data_(static_cast<std::byte*>(memory.allocate(bytes))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { memory_.release(data_); }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  DeviceMemory& memory_;
  std::byte* data_;
};

/// The shortest of several tries, after `heat` seconds of the same.
double best_seconds(DeviceTimer& timer, double heat, const std::function<void()>& enqueue) {
  const auto start = Clock::now();
  double best = timer.seconds(enqueue);
  while (std::chrono::duration<double>(Clock::now() - start).count() < heat)
    best = timer.seconds(enqueue);  // what the first moments show does not last
  for (int i = 0; i < kTries; ++i) best = std::min(best, timer.seconds(enqueue));
  return best;
}

void measure_memory(const Device& device, DeviceTimer& timer, DeviceMemory& memory,
                    DeviceCeilings& ceilings) {
  const kernels::probe::Table& table = kernels::probe::table();
  const std::size_t wanted = std::min(kReadBytes, timer.free_bytes() / 4);
  const std::size_t bytes = wanted / (1U << 20U) * (1U << 20U);
  const Scratch buffer(memory, bytes);
  const Scratch sink(memory, 4);
  void* const stream = timer.stream().handle;
  fill_rows(
      {.data = buffer.data(), .rows = 1, .count = static_cast<std::int64_t>(bytes / 4), .dtype = DType::kF32},
      timer.stream());
  for (const int blocks : {device.num_sms * kBlocksPerSm, device.num_sms * 4 * kBlocksPerSm}) {
    const double read = best_seconds(timer, 0, [&] {
      table.read(buffer.data(), bytes, blocks, reinterpret_cast<std::uint32_t*>(sink.data()), stream);
    });
    const double copy = best_seconds(
        timer, 0, [&] { table.copy(buffer.data() + bytes / 2, buffer.data(), bytes / 2, blocks, stream); });
    ceilings.read_bytes_per_s = std::max(ceilings.read_bytes_per_s, static_cast<double>(bytes) / read);
    ceilings.copy_bytes_per_s = std::max(ceilings.copy_bytes_per_s, static_cast<double>(bytes) / copy);
  }
}

void measure_arithmetic(const Device& device, DeviceTimer& timer, DeviceMemory& memory,
                        DeviceCeilings& ceilings) {
  using namespace kernels::probe;
  const Scratch sink(memory, 4);
  auto* const out = reinterpret_cast<float*>(sink.data());
  const int blocks = device.num_sms * kBlocksPerSm * 4;
  void* const stream = timer.stream().handle;
  const double loop = 2.0 * kLoopRounds * kChains * kThreads * blocks;
  ceilings.f32_flops =
      loop / best_seconds(timer, kHeatSeconds / 4, [&] { table().multiply_add(blocks, out, stream); });

  if (kernels::lt::available()) {
    constexpr std::int64_t kElements = kMatrixSize * kMatrixSize;
    const Scratch operands(memory, 3 * kElements * 2);
    const Scratch workspace(memory, kernels::lt::kWorkspaceBytes);
    fill_rows({.data = operands.data(), .rows = 1, .count = 2 * kElements, .dtype = DType::kBF16},
              timer.stream());
    kernels::lt::Product product;
    product.m = product.n = product.k = kMatrixSize;
    product.a_row = product.w_row = product.out_row = kMatrixSize;
    const double seconds = best_seconds(timer, kHeatSeconds, [&] {
      kernels::lt::multiply(product, operands.data(), operands.data() + kElements * 2,
                            operands.data() + kElements * 4, {workspace.data(), kernels::lt::kWorkspaceBytes},
                            stream);
    });
    ceilings.bf16_flops = 2.0 * kMatrixSize * static_cast<double>(kElements) / seconds;
    ceilings.bf16_method = fmt::format("cuBLASLt {0}, {1}x{1}x{1}", kernels::lt::version(), kMatrixSize);
    return;
  }
  const double matrix = 2.0 * 16 * 8 * 16 * kLoopRounds * kChains * (kThreads / 32) * blocks;
  ceilings.bf16_flops =
      matrix / best_seconds(timer, kHeatSeconds, [&] { table().matrix(blocks, out, stream); });
  ceilings.bf16_method = "mma.sync loop (no cuBLASLt)";
}

void measure_launches(DeviceTimer& timer, DeviceCeilings& ceilings) {
  constexpr int kChain = 200;
  void* const stream = timer.stream().handle;
  const auto nothing = [&] { kernels::probe::table().nothing(stream); };
  ceilings.call_seconds = best_seconds(timer, 0, nothing);
  const auto one = timer.capture(nothing);
  const auto many = timer.capture([&] {
    for (int i = 0; i < kChain; ++i) nothing();
  });
  double chain = timer.seconds(*many, 1);
  ceilings.graph_seconds = timer.seconds(*one, 1);
  for (int i = 0; i < kTries; ++i) {
    chain = std::min(chain, timer.seconds(*many, 1));
    ceilings.graph_seconds = std::min(ceilings.graph_seconds, timer.seconds(*one, 1));
  }
  ceilings.kernel_seconds = chain / kChain;
}

}  // namespace

DeviceCeilings measure_ceilings(const Device& device) {
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(device);
  DeviceMemory& memory = device_memory(device);
  DeviceCeilings ceilings;
  measure_memory(device, *timer, memory, ceilings);
  measure_arithmetic(device, *timer, memory, ceilings);
  measure_launches(*timer, ceilings);
  return ceilings;
}

}  // namespace mla
