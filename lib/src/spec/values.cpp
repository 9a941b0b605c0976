// SPDX-License-Identifier: Apache-2.0
#include "spec/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/count.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::spec {
namespace {

constexpr std::size_t kMostValues = 100'000;

[[noreturn]] void refuse(std::string_view what, std::string_view text, std::string_view why,
                         std::string hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}{}", what, text::quoted(text), why),
              std::move(hint));
}

/// "low..high" or "low..high:step" or "low..high:xfactor", appended to `values`.
void append_range(std::vector<std::int64_t>& values, std::string_view item, std::size_t dots,
                  std::string_view what) {
  const std::string_view tail = item.substr(dots + 2);
  const std::size_t colon = tail.find(':');
  const std::int64_t low = parse_count(item.substr(0, dots), fmt::format("{}: the start of a range", what));
  const std::int64_t high = parse_count(tail.substr(0, colon), fmt::format("{}: the end of a range", what));
  if (low > high) refuse(what, item, ", a range whose end lies below its start");
  std::string_view by = colon == std::string_view::npos ? "1" : tail.substr(colon + 1);
  const bool multiply = by.starts_with('x');
  if (multiply) by.remove_prefix(1);
  const std::int64_t step =
      parse_count(by, fmt::format("{}: the {} of a range", what, multiply ? "factor" : "step"));
  if (step == 0 || (multiply && step == 1)) {
    refuse(what, item, multiply ? ", whose factor must be >= 2" : ", whose step must be >= 1");
  }
  if (multiply && low == 0) refuse(what, item, ", which multiplies from 0 and would never move");
  for (std::int64_t value = low;;) {
    if (values.size() == kMostValues) refuse(what, item, fmt::format(", more than {} values", kMostValues));
    values.push_back(value);
    // Compared before the step, so that nothing overflows.
    if (multiply ? value > high / step : value > high - step) return;
    value = multiply ? value * step : value + step;
  }
}

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                           {"TiB", 0x1p40}, {"PiB", 0x1p50}, {"kB", 1e3},     {"KB", 1e3},
                           {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"PB", 1e15}};

}  // namespace

std::int64_t parse_count(std::string_view text, std::string_view what) {
  return text::parse_count(text, what, ErrorCode::kInvalidArgument);
}

std::vector<std::int64_t> parse_count_list(std::string_view text, std::string_view what) {
  std::vector<std::int64_t> values;
  for (const std::string& item : parse_words(text, what)) {
    const std::size_t dots = item.find("..");
    if (dots != std::string::npos) {
      append_range(values, item, dots, what);
    } else {
      if (values.size() == kMostValues) refuse(what, text, fmt::format(", more than {} values", kMostValues));
      values.push_back(parse_count(item, what));
    }
  }
  return values;
}

std::int64_t parse_size(std::string_view text, std::string_view what) {
  constexpr std::string_view kHint =
      "write it like 80GiB (2^30 bytes each) or 141GB (10^9), with B, kB, MB, TB, KiB, MiB, TiB";
  const auto bad = [&](std::string_view why) { refuse(what, text, why, std::string(kHint)); };
  double number = 0;
  const char* const end = text.data() + text.size();
  // chars_format::fixed: neither an exponent nor a hexadecimal number, but still "inf" and "nan", hence the
  // digit test.
  const auto [stop, status] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const bool digit = !text.empty() && text.front() >= '0' && text.front() <= '9';
  if (text.starts_with('-')) bad(", but a size is >= 0");
  if (!digit || status == std::errc::invalid_argument) bad(", not a size");
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  if (suffix.empty()) bad(" without a unit: GiB or GB?");
  const auto unit =
      std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& u) { return u.name == suffix; });
  if (unit == std::end(kUnits)) bad(fmt::format(", whose unit {} is unknown", text::quoted(suffix)));
  const double bytes = std::round(number * unit->bytes);
  if (status == std::errc::result_out_of_range || bytes >= 0x1p63) bad(", too large");
  return static_cast<std::int64_t>(bytes);
}

std::vector<std::string> parse_words(std::string_view text, std::string_view what) {
  std::vector<std::string> words = text::split(text, ',');
  for (const std::string& word : words) {
    if (word.empty()) {
      refuse(what, text, text.empty() ? ", but must name at least one value" : ", which has an empty item",
             "separate the values by single commas: a,b,c");
    }
  }
  return words;
}

}  // namespace mla::spec
