// SPDX-License-Identifier: Apache-2.0
// How much work a request is, on the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mla/shape.hpp"

namespace mla::kernels {

/// Keys that a request's queries may see between them, at most.
inline std::int64_t visible_keys(const AttentionShape& shape, const Request& r) {
  if (!shape.mask.window) return r.kv_len;
  return std::min<std::int64_t>(r.kv_len, std::int64_t{*shape.mask.window} + r.q_len - 1 + shape.mask.sink);
}

}  // namespace mla::kernels
