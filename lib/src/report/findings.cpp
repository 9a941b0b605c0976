// SPDX-License-Identifier: Apache-2.0
#include "report/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "mla/shape.hpp"

namespace mla::report {
namespace {

/// Times of the same thing under different names of one axis: group -> name -> microseconds.
using Times = std::map<std::string, std::map<std::string, double>>;

struct Ratio {
  double log_sum = 0;
  int count = 0;
  double low = INFINITY, high = 0;
  void add(double ratio) {
    log_sum += std::log(ratio);
    ++count;
    low = std::min(low, ratio);
    high = std::max(high, ratio);
  }
  [[nodiscard]] Ratio inverse() const { return {-log_sum, count, 1 / high, 1 / low}; }
};

/// Ratios of every pair of names over the groups that hold both.
std::map<std::pair<std::string, std::string>, Ratio> ratios(const Times& times) {
  std::map<std::pair<std::string, std::string>, Ratio> pairs;
  for (const auto& [group, by_name] : times) {
    for (auto a = by_name.begin(); a != by_name.end(); ++a) {
      for (auto b = std::next(a); b != by_name.end(); ++b)
        pairs[{a->first, b->first}].add(b->second / a->second);
    }
  }
  return pairs;
}

std::string window_name(const Mask& mask) {
  if (!mask.window) return "all keys";
  std::string name = fmt::format("window {}", *mask.window);
  return mask.sink > 0 ? fmt::format("{} and sink {}", name, mask.sink) : name;
}

/// `ratio` is time of b / time of a. "a is 3.10 times as fast as b (geometric mean of 4 shapes, 2.00 to
/// 5.20)".
std::string faster(const std::string& a, const std::string& b, const Ratio& ratio) {
  if (ratio.log_sum < 0) return faster(b, a, ratio.inverse());
  std::string text =
      fmt::format("{} is {:.2f} times as fast as {}", a, std::exp(ratio.log_sum / ratio.count), b);
  if (ratio.count > 1) {
    text +=
        fmt::format(" (geometric mean of {} shapes, {:.2f} to {:.2f})", ratio.count, ratio.low, ratio.high);
  }
  return text;
}

}  // namespace

std::vector<std::string> findings(std::span<const BenchRecord> records) {
  Times backends;
  std::map<std::string, Times> windows;  // by backend
  for (const BenchRecord& record : records) {
    if (record.status != "ok" || record.repetition != 0) continue;
    const std::string how =
        fmt::format("{} {} {} {} {} {} {}", record.device, record.timer, record.cache_state,
                    record.num_splits, record.threads, record.work, record.mode);
    backends[record.key + how][record.backend] = *record.time_us;
    AttentionShape shape = parse_shape(record.key);
    if (shape.topk > 0) continue;
    const std::string name = window_name(shape.mask);
    shape.mask.window.reset();
    shape.mask.sink = 0;
    windows[record.backend][to_text(shape) + how][name] = *record.time_us;
  }
  std::vector<std::string> sentences;
  for (const auto& [pair, ratio] : ratios(backends))
    sentences.push_back(faster(pair.first, pair.second, ratio));
  for (const auto& [backend, times] : windows) {
    for (const auto& [pair, ratio] : ratios(times)) {
      if (pair.first == "all keys") {
        sentences.push_back(fmt::format("{}: {}", backend, faster(pair.first, pair.second, ratio)));
      }
    }
  }
  return sentences;
}

std::string tally(std::span<const BenchRecord> records) {
  std::map<std::string, int> counts;
  for (const BenchRecord& record : records) ++counts[record.status];
  const auto modelled = std::ranges::count(records, std::string("modelled"), &BenchRecord::timer);
  const auto unverified = std::ranges::count_if(records, [](const BenchRecord& r) {
    return r.status == "ok" && r.verified == "no" && r.timer != "modelled";
  });
  std::string text =
      modelled == std::ssize(records) ? fmt::format("{} points modelled, none measured", counts["ok"])
      : unverified == 0
          ? fmt::format("{} points measured, each verified first", counts["ok"])
          : fmt::format("{} points measured, {} of them not verified", counts["ok"], unverified);
  for (const char* status : {"wrong", "error", "unsupported"}) {
    if (counts[status] > 0) text += fmt::format("; {} {}", counts[status], status);
  }
  return text;
}

}  // namespace mla::report
