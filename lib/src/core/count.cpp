// SPDX-License-Identifier: Apache-2.0
#include "core/count.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/text.hpp"

namespace mla::text {
namespace {

constexpr std::int64_t kKilo = 1024;
constexpr std::int64_t kMega = kKilo * kKilo;

/// "e9" -> 9, up to the largest power of ten that a count can be; 0 for any other suffix.
int zeros_of(std::string_view suffix) {
  constexpr int kMost = 18;
  if (suffix.size() < 2 || (suffix[0] != 'e' && suffix[0] != 'E') || suffix[1] < '1' || suffix[1] > '9')
    return 0;
  int zeros = 0;
  const char* const end = suffix.data() + suffix.size();
  const auto [stop, status] = std::from_chars(suffix.data() + 1, end, zeros);
  return status == std::errc{} && stop == end && zeros <= kMost ? zeros : 0;
}

std::string allowed(std::int64_t low, std::int64_t high) {
  const std::string range = high == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format(">= {}", low)
                                : fmt::format("in {}..{}", low, high);
  return fmt::format("a whole number {}, optionally with suffix k (1024) or m (1048576)", range);
}

}  // namespace

std::int64_t parse_count(std::string_view text, std::string_view what, ErrorCode code, std::int64_t low,
                         std::int64_t high) {
  const auto refuse = [&](std::string_view why) {
    throw Error(code, fmt::format("{} {}, but must be {}", what, why, allowed(low, high)));
  };
  if (text.empty()) refuse("is empty");
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status == std::errc::invalid_argument) refuse(fmt::format("is {}, not a number", quoted(text)));
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  std::int64_t unit = 1;
  if (suffix == "k" || suffix == "K") {
    unit = kKilo;
  } else if (suffix == "m" || suffix == "M") {
    unit = kMega;
  } else if (const int zeros = zeros_of(suffix); zeros > 0) {
    for (int i = 0; i < zeros; ++i) unit *= 10;
  } else if (suffix.starts_with('.')) {
    refuse(fmt::format("is {}, not whole", quoted(text)));
  } else if (!suffix.empty()) {
    refuse(fmt::format("is {} with an unknown suffix {}", quoted(text), quoted(suffix)));
  }
  const bool overflow = status == std::errc::result_out_of_range || value > high / unit;
  if (text.front() == '-' && low >= 0) refuse(fmt::format("is {}, negative", quoted(text)));
  if (overflow) refuse(fmt::format("is {}, too large", quoted(text)));
  if (value * unit < low) refuse(fmt::format("is {}, too small", quoted(text)));
  return value * unit;
}

std::string format_count(std::int64_t value) {
  if (value > 0 && value % kMega == 0) return fmt::format("{}m", value / kMega);
  if (value > 0 && value % kKilo == 0) return fmt::format("{}k", value / kKilo);
  return fmt::format("{}", value);
}

}  // namespace mla::text
