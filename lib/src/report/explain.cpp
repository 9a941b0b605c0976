// SPDX-License-Identifier: Apache-2.0
#include "report/explain.hpp"

#include <fmt/format.h>

#include <array>

namespace mla::report {
namespace {

/// 12345 -> "12.3 k" with the unit's letter of thousands.
std::string scaled(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  std::size_t i = 0;
  for (; value >= 1000 && i + 1 < kPrefixes.size(); ++i) value /= 1000;
  return fmt::format("{:.3g} {}{}", value, kPrefixes[i], unit);
}

/// Three digits at least, no powers of ten.
std::string in_us(double value) {
  return value >= 100 ? fmt::format("{:.0f} us", value) : fmt::format("{:.3g} us", value);
}

/// What the record itself says about the distance from the floor, the largest first.
std::string rest_of(const BenchRecord& r) {
  std::string rest;
  const auto say = [&](std::string text) { rest += (rest.empty() ? "" : "; ") + std::move(text); };
  if (*r.flops > 1.5 * *r.least_flops)
    say(fmt::format("its strategy computes {:.3g} times the least", *r.flops / *r.least_flops));
  if (r.bound == "launch" || *r.time_us < 30)
    say("at this size latency, splits and their merge count, not rates");
  if (!r.slowed_by.empty()) say(fmt::format("the clock was held down ({})", r.slowed_by));
  if (r.event_us && *r.event_us > 1.3 * *r.time_us)
    say(fmt::format("launched by itself a call takes {}", in_us(*r.event_us)));
  return rest;
}

}  // namespace

std::string explain(const BenchRecord& r) {
  if (r.status != "ok" || !r.time_us) return r.reason;
  if (!r.floor_us || !r.of_floor || !r.bytes || !r.flops || !r.least_flops)
    return fmt::format("{}; no ceilings were measured, so nothing can be said about it", in_us(*r.time_us));
  const bool modelled = r.timer == "modelled";  // then the floor is that of its own strategy
  const double flops = modelled ? *r.flops : *r.least_flops;
  std::string text =
      fmt::format("at least {} and {} ({:.3g} FLOP/B): bound by {}, {} at best", scaled(*r.bytes, "B"),
                  scaled(flops, "FLOP"), flops / *r.bytes, r.bound, in_us(*r.floor_us));
  if (modelled) return text + ", by nominal peaks and without launch and latency";
  text += fmt::format("; {} is {:.3g} times that", in_us(*r.time_us), *r.time_us / *r.floor_us);
  if (const std::string rest = rest_of(r); !rest.empty()) text += ": " + rest;
  return text;
}

Table explained_table(std::span<const BenchRecord> records) {
  Table table{"explained",
              "",
              {{"backend", "backend"}, {"key", "shape"}, {"explanation", "why it takes what it takes"}},
              {}};
  for (const BenchRecord& r : records)
    table.rows.push_back(
        {r.backend, r.work.empty() ? r.key : fmt::format("{} ({})", r.key, r.work), explain(r)});
  return table;
}

}  // namespace mla::report
