// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mla/memory.hpp"

namespace mla::detail {

/// How kernels/ tells the library that it has a runtime: null is "not my device". Called from a static
/// initialiser.
using MemoryProvider = DeviceMemory* (*)(const Device& device);
void set_memory_provider(MemoryProvider provider) noexcept;

}  // namespace mla::detail
