// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

/// Argument checks of the reference: nothing is read before its length is known to be right.
namespace mla::reference::detail {

/// Throws kInvalidArgument unless `got` elements are exactly those of a packed array of `extents`, e.g.
/// require_size("q", q.size(), "[tokens, H, P+R]", {tokens, H, P + R}). Products that overflow do not match.
void require_size(std::string_view what, std::size_t got, std::string_view shape,
                  std::initializer_list<std::int64_t> extents);

/// Throws kInvalidArgument unless low <= value (<= high).
void require_at_least(std::string_view what, std::int64_t value, std::int64_t low);
void require_between(std::string_view what, std::int64_t value, std::int64_t low, std::int64_t high);

/// Throws kInvalidArgument unless the scale is finite and > 0. It has no default: the right one depends on
/// the model's YaRN factor.
void require_softmax_scale(double scale);

}  // namespace mla::reference::detail
