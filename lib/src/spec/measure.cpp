// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "spec/point_builder.hpp"
#include "spec/read.hpp"
#include "spec/values.hpp"

namespace mla::spec {
namespace {

/// "50ms" -> 0.05 seconds.
double parse_duration(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const double scale = unit == "us"    ? 1e-6
                       : unit == "ms"  ? 1e-3
                       : unit == "s"   ? 1.0
                       : unit == "min" ? 60.0
                                       : 0.0;
  if (status != std::errc{} || scale == 0 || !(value >= 0 && value * scale <= 86400)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is not a duration", text::quoted(text)),
                "write it like 500us, 50ms, 2s or 1min, at most a day");
  }
  return value * scale;
}

}  // namespace

double parse_percent(std::string_view text, std::string_view what) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (status != std::errc{} || std::string_view(stop, static_cast<std::size_t>(end - stop)) != "%" ||
      !(value > 0 && value <= 100)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}, not a share", what, text::quoted(text)),
                "write it like 1% or 0.5%, above 0 and at most 100");
  }
  return value / 100;
}

Measure measure_of(const SweepSpec& spec) {
  const auto read = [&](std::string_view key, auto parse) {
    return with_context(spec, key, [&] { return parse(spec.settings.find(key)->second.text); });
  };
  const auto count = [&](std::string_view key, std::int64_t low, std::int64_t high) {
    return read(key, [&](const std::string& text) {
      const std::int64_t value = parse_count(text, key);
      if (value < low || value > high) {
        throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is not in {}..{}", value, low, high));
      }
      return value;
    });
  };
  Measure measure;
  measure.rule.noise = read("noise", [](const std::string& text) { return parse_percent(text, "noise"); });
  measure.rule.min_samples = static_cast<int>(count("min_samples", 1, 100'000));
  measure.rule.max_samples = static_cast<int>(count("max_samples", 1, 100'000));
  measure.rule.min_time = read("min_time", parse_duration);
  measure.rule.max_time = read("max_time", parse_duration);
  measure.preheat = read("preheat", parse_duration);
  measure.repetitions = static_cast<int>(count("repetitions", 1, 1000));
  measure.processes = static_cast<int>(count("processes", 1, 100));
  measure.seed = static_cast<std::uint64_t>(count("seed", 0, std::numeric_limits<std::int64_t>::max()));
  measure.random_order = read("order", [](const std::string& text) {
    return pick<bool>(text, {{"given", false}, {"random", true}});
  });
  measure.verify = read("verify", [](const std::string& text) {
    return pick<VerifyMode>(
        text, {{"sample", VerifyMode::kSample}, {"full", VerifyMode::kFull}, {"no", VerifyMode::kNo}});
  });
  if (measure.rule.min_samples > measure.rule.max_samples) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("min_samples {} is above max_samples {}",
                                                         measure.rule.min_samples, measure.rule.max_samples));
  }
  return measure;
}

std::string_view name_of(Caches caches) noexcept {
  return caches == Caches::kCold ? "cold" : "warm";
}

std::string_view name_of(VerifyMode mode) noexcept {
  return mode == VerifyMode::kSample ? "sample" : mode == VerifyMode::kFull ? "full" : "no";
}

}  // namespace mla::spec
