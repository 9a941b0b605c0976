// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "mla/backend.hpp"
#include "mla/memory.hpp"
#include "verify/problem.hpp"

namespace mla::verify {

/// An allocation of a DeviceMemory, released with the object.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DeviceMemory& memory, std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  DeviceMemory* memory_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A problem in a backend's memory, ready to be run as often as wanted. The problem must outlive it.
class Stage {
 public:
  Stage(const Problem& problem, DeviceMemory& memory);
  [[nodiscard]] const AttentionArgs& args() const noexcept { return args_; }
  [[nodiscard]] DeviceMemory& memory() const noexcept { return *memory_; }
  /// Every byte of the outputs becomes NaN again.
  void reset_outputs();
  /// Scratch for a plan, full of NaN.
  [[nodiscard]] std::span<std::byte> workspace(std::size_t bytes);
  [[nodiscard]] HostTensor read_out() const;
  /// Empty if the case asks for no LSE.
  [[nodiscard]] HostTensor read_lse() const;
  /// Name of an input whose bytes are no longer those that were staged, or empty.
  [[nodiscard]] std::string changed_input() const;

 private:
  struct Input {
    std::string name;
    std::span<const std::byte> host;
    const std::byte* device = nullptr;
  };
  std::byte* put(const char* name, std::span<const std::byte> host, std::size_t lead = 0);
  ConstTensorRef put_query(const HostTensor& q);
  void make_output(const HostTensor& out);
  void copy_output(HostTensor& out, bool to_host) const;

  const Problem* problem_;
  DeviceMemory* memory_;
  AttentionArgs args_;
  HostTensor out_, lse_;         // as before a run
  std::size_t out_spacing_ = 0;  // bytes between tokens of the output
  std::vector<Buffer> buffers_;
  std::vector<Input> inputs_;
  Buffer out_buffer_, lse_buffer_, workspace_;
};

}  // namespace mla::verify
