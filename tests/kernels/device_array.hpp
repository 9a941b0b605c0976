// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mla/device.hpp"
#include "mla/memory.hpp"

namespace mla::testing {

/// The GPU that tests run on; empty, with the reason, where there is none.
struct TestGpu {
  std::optional<Device> device;
  std::string why_none;
};
inline const TestGpu& test_gpu() {
  static const TestGpu gpu = [] {
    RealDevices found = real_devices();
    if (found.devices.empty()) return TestGpu{std::nullopt, found.why_none};
    return TestGpu{found.devices.front(), {}};
  }();
  return gpu;
}

/// A test that needs a GPU says so in its first line.
#define MLA_NEEDS_GPU() \
  if (!mla::testing::test_gpu().device) GTEST_SKIP() << mla::testing::test_gpu().why_none

/// Device memory of a type, released with the object. What nobody writes is all ones: NaN, or -1.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : memory_(device_memory(*test_gpu().device)), size_(count) {
    data_ = static_cast<T*>(memory_.allocate(count * sizeof(T)));
    constexpr std::size_t kPiece = std::size_t{64} << 20;
    const std::vector<std::byte> ones(std::min(count * sizeof(T), kPiece), std::byte{0xff});
    for (std::size_t at = 0; at < count * sizeof(T); at += kPiece) {
      memory_.to_device(reinterpret_cast<std::byte*>(data_) + at, ones.data(),
                        std::min(kPiece, count * sizeof(T) - at));
    }
  }
  explicit DeviceArray(std::span<const T> host) : DeviceArray(host.size()) { write(host); }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(std::span<const T>(host)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { memory_.release(data_); }

  void write(std::span<const T> host, std::size_t at = 0) {
    memory_.to_device(data_ + at, host.data(), host.size() * sizeof(T));
  }
  /// Waits for what was enqueued before.
  [[nodiscard]] std::vector<T> read(std::size_t count, std::size_t at = 0) const {
    memory_.synchronize();
    std::vector<T> host(count);
    memory_.to_host(host.data(), data_ + at, count * sizeof(T));
    return host;
  }
  [[nodiscard]] std::vector<T> read() const { return read(size_); }
  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  DeviceMemory& memory_;
  std::size_t size_;
  T* data_ = nullptr;
};

}  // namespace mla::testing
