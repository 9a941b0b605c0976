// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mla/export.h"
#include "mla/shape.hpp"

/// The words of a shape for shared prefixes (mla/shape.hpp, to_text), and what they must keep to.
namespace mla {

inline constexpr std::string_view kSharedWord = "prefix";

/// "prefix8k" or "prefix8k@0+4_1k@6+2". Without requests named, `count` is 0 until resolve_shared().
/// Throws kParse.
[[nodiscard]] MLA_EXPORT std::vector<SharedPrefix> parse_shared(std::string_view word);
/// A count of 0 becomes the whole batch.
MLA_EXPORT void resolve_shared(AttentionShape& shape);
/// The shared prefix that a request's first keys belong to, or null.
[[nodiscard]] MLA_EXPORT const SharedPrefix* shared_prefix_of(const AttentionShape& shape,
                                                              std::size_t request);
/// Keys that a request has only through another one before it in its group: those of the prefix, or none.
[[nodiscard]] MLA_EXPORT std::int64_t borrowed_keys(const AttentionShape& shape, std::size_t request);
/// Takes requests first .. first + count - 1 out of the batch and of the groups.
MLA_EXPORT void drop_requests(AttentionShape& shape, std::size_t first, std::size_t count);

[[nodiscard]] std::string format_shared(const AttentionShape& shape);
/// A step writes the rows of its new tokens: throws kInvalidArgument where they would lie in pages that requests share.
MLA_EXPORT void validate_new_rows(const AttentionShape& shape);
/// Throws kInvalidArgument as validate(AttentionShape) says.
void validate_shared(const AttentionShape& shape);

}  // namespace mla
