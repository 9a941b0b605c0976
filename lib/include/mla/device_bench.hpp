// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "mla/export.h"
#include "mla/random_rows.hpp"

/// What measuring on a real GPU takes, without the runtime's headers: events, captured graphs, random
/// contents and the machine's ceilings. mla-bench times every device backend with it. Everything here throws
/// kDevice in a build without a runtime, and where the runtime refuses (with its own sentence).
namespace mla {

/// Work captured once, replayed as often as wanted.
class MLA_EXPORT CapturedWork {
 public:
  CapturedWork() = default;
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;
  virtual ~CapturedWork();
};

/// Times work by the device's own events, on one stream of one device. Making one makes its device the
/// current one of the calling thread, where all calls must come from.
class MLA_EXPORT DeviceTimer {
 public:
  DeviceTimer() = default;
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  virtual ~DeviceTimer();
  /// What is timed must be enqueued here.
  [[nodiscard]] virtual Stream stream() const noexcept = 0;
  /// Captures what `enqueue` puts on stream(). Throws kUnsupported if something in it cannot be captured.
  [[nodiscard]] virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& enqueue) = 0;
  /// Seconds between an event before and one after what `enqueue` puts on stream(). `meanwhile` (may be
  /// empty) runs on the host once all is enqueued, while the device works. Waits for the end.
  [[nodiscard]] virtual double seconds(const std::function<void()>& enqueue,
                                       const std::function<void()>& meanwhile = {}) = 0;
  /// The same for `replays` replays; `work` comes from this timer. The device begins once all of them are enqueued
  /// (or after some 10 ms), so that it never waits for the host.
  [[nodiscard]] virtual double seconds(CapturedWork& work, int replays,
                                       const std::function<void()>& meanwhile = {}) = 0;
  /// "0000:3b:00.0": how other tools (NVML) name the device.
  [[nodiscard]] virtual std::string bus_id() const = 0;
  /// Device memory that can be had now.
  [[nodiscard]] virtual std::size_t free_bytes() const = 0;
};
[[nodiscard]] MLA_EXPORT std::unique_ptr<DeviceTimer> make_device_timer(const Device& device);

/// On the current device. Throws kInvalidArgument for another type.
MLA_EXPORT void fill_rows(const RandomRows& rows, Stream stream = {});
/// Every byte becomes `value`.
MLA_EXPORT void fill_bytes(std::byte* data, std::size_t bytes, std::byte value, Stream stream = {});

/// What a device reached when it was asked: the ceilings of every row measured in the same run.
struct DeviceCeilings {
  double read_bytes_per_s = 0;  ///< reading memory far beyond the L2
  double copy_bytes_per_s = 0;  ///< copying it, bytes read plus bytes written
  double bf16_flops = 0;      ///< the matrix units, after 0.1 s of the same load (the power limit has bitten)
  std::string bf16_method;    ///< "cuBLASLt 8192^3", or the loop that stands in where there is no cuBLASLt
  double f32_flops = 0;       ///< multiply-adds outside the matrix units
  double kernel_seconds = 0;  ///< an empty kernel in a graph of many
  double graph_seconds = 0;   ///< a graph of one empty kernel, event to event
  double call_seconds = 0;    ///< an empty kernel launched by itself, event to event
};
/// Takes about two seconds and at most 6 GiB of device memory.
[[nodiscard]] MLA_EXPORT DeviceCeilings measure_ceilings(const Device& device);

}  // namespace mla
