// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mla/backend.hpp"
#include "verify/case.hpp"

namespace mla::verify {

/// Where the length of a request comes from, once the block size is known.
struct LengthRule {
  std::int32_t pages = 0;   ///< this many blocks ...
  std::int32_t tokens = 0;  ///< ... and this many tokens more (may be negative)
};

/// How many new tokens each request has.
enum class QueryRule : std::uint8_t { kFixed, kRagged, kPrefill };

/// A case in the making: axes set parts of it in any order, finish() makes lengths and batch from the rules.
struct Draft {
  Case c;
  LengthRule length;
  std::int32_t requests = 1;
  QueryRule query = QueryRule::kFixed;
  std::int32_t q_len = 1;
  std::int32_t window_pages = 0;  ///< window = this many blocks + window_tokens, if either is set
  std::int32_t window_tokens = 0;
};

struct Level {
  std::string name;
  std::function<void(Draft&)> set;
};

struct Axis {
  std::string name;
  std::vector<Level> levels;
};

/// The axes of the design; `wide` adds the levels that only the full suite has. Edges come from the backends.
[[nodiscard]] std::vector<Axis> make_axes(bool wide, std::span<const Backend* const> backends);

/// The case, or nothing where the parts contradict each other (a format that cannot hold the dims, ...); then `why` says
/// what does, if it is given.
[[nodiscard]] std::optional<Case> finish(const Draft& draft, std::string* why = nullptr);

}  // namespace mla::verify
