// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "mla/backend.hpp"

namespace mla {

/// Throws kUnsupported with the reason of the first candidate that belongs on such a device; the hint says
/// how many others refused.
[[noreturn]] void throw_no_backend(const AttentionShape& shape, const Device& device,
                                   std::span<const Candidate> answers);

}  // namespace mla
