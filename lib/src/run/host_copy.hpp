// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "mla/backend.hpp"
#include "mla/memory.hpp"
#include "run/sampled_check.hpp"

namespace mla::run {

/// A call's arguments copied from a GPU's memory to this host's, for kernels in other processes. Tensors must
/// be packed.
class HostCopy {
 public:
  HostCopy(const AttentionShape& shape, const AttentionArgs& args, DeviceMemory& memory);
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;
  /// Outputs are full of NaN until somebody writes them.
  [[nodiscard]] const AttentionArgs& args() const noexcept { return args_; }
  [[nodiscard]] SampleOutputs outputs() const;

 private:
  template <class T>
  void pull(T*& data, std::size_t bytes);
  DeviceMemory& memory_;
  AttentionArgs args_;
  std::list<std::vector<std::byte>> buffers_;
};

}  // namespace mla::run
