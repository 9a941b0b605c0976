// SPDX-License-Identifier: Apache-2.0
#include "check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "mla/error.hpp"

namespace mla::reference::detail {

void require_size(std::string_view what, std::size_t got, std::string_view shape,
                  std::initializer_list<std::int64_t> extents) {
  std::int64_t want = 1;
  bool fits = true;
  for (const std::int64_t extent : extents) fits = fits && !__builtin_mul_overflow(want, extent, &want);
  if (fits && static_cast<std::uint64_t>(want) == got) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} has {} elements, but {} = [{}] has {}", what, got, shape,
                          fmt::join(extents, ", "), fits ? fmt::to_string(want) : "more than 2^63"));
}

void require_at_least(std::string_view what, std::int64_t value, std::int64_t low) {
  if (value >= low) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}, but must be at least {}", what, value, low));
}

void require_between(std::string_view what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}, but must be in {}..{}", what, value, low, high));
}

void require_softmax_scale(double scale) {
  if (std::isfinite(scale) && scale > 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("softmax_scale is {}, but must be finite and > 0", scale),
              "it is (P + R)^-1/2 times the model's YaRN factor; see plain_softmax_scale()");
}

}  // namespace mla::reference::detail
