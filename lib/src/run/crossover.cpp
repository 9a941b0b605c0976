// SPDX-License-Identifier: Apache-2.0
#include "run/crossover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "mla/error.hpp"

namespace mla::run {
namespace {

/// Measures on demand, each x once.
class Line {
 public:
  explicit Line(const std::function<bool(CrossoverPoint&)>& measure) : measure_(measure) {}
  /// Who is faster at x; empty once the caller gave up.
  std::optional<int> at(std::int64_t x) {
    const auto found = points.find(x);
    if (found != points.end()) return found->second.faster();
    CrossoverPoint point;
    point.x = x;
    if (!measure_(point)) return std::nullopt;
    points[x] = point;
    return point.faster();
  }
  std::map<std::int64_t, CrossoverPoint> points;

 private:
  const std::function<bool(CrossoverPoint&)>& measure_;
};

/// The whole number nearest to the geometric mean, strictly between; 0 if there is none or the two are near
/// enough.
std::int64_t between(std::int64_t low, std::int64_t high, double resolution) {
  if (static_cast<double>(high) <= static_cast<double>(low) * resolution || high - low < 2) return 0;
  const double mean = std::sqrt(static_cast<double>(low) * static_cast<double>(high));
  return std::clamp(static_cast<std::int64_t>(std::llround(mean)), low + 1, high - 1);
}

/// log(first / second) is about straight over log(x): where is it zero?
double interpolate(const std::map<std::int64_t, CrossoverPoint>& points, std::int64_t low,
                   std::int64_t high) {
  const CrossoverPoint* before = &points.at(low);
  const CrossoverPoint* after = &points.at(high);
  const auto difference = [](const CrossoverPoint& p) { return std::log(p.first / p.second); };
  const bool rising = difference(*after) > difference(*before);
  for (const auto& [x, point] : points) {  // the innermost pair that still encloses zero
    if (x <= low || x >= high) continue;
    if ((difference(point) < 0) == rising) {
      before = &point;
    } else {
      after = &point;
      break;
    }
  }
  const double d0 = difference(*before);
  const double d1 = difference(*after);
  const double t = d1 == d0 ? 0.5 : std::clamp(-d0 / (d1 - d0), 0.0, 1.0);
  return std::exp(
      std::lerp(std::log(static_cast<double>(before->x)), std::log(static_cast<double>(after->x)), t));
}

}  // namespace

int CrossoverPoint::faster() const noexcept {
  if (first_interval.high < second_interval.low) return -1;
  return second_interval.high < first_interval.low ? 1 : 0;
}

Crossover find_crossover(std::int64_t low, std::int64_t high, double resolution,
                         const std::function<bool(CrossoverPoint&)>& measure) {
  if (low < 1 || high <= low || !(resolution > 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("there is no crossover to look for in {}..{}", low, high),
                "the range needs two ends, the first at least 1");
  }
  Line line(measure);
  Crossover result;
  const auto finish = [&] {
    for (const auto& [x, point] : line.points) result.points.push_back(point);
    if (result.found) result.estimate = interpolate(line.points, result.low, result.high);
    return result;
  };
  const std::optional<int> at_low = line.at(low);
  const std::optional<int> at_high = at_low ? line.at(high) : std::nullopt;
  if (!at_high) {
    result.interrupted = true;
    return finish();
  }
  result.below = *at_low;
  result.above = *at_high;
  result.low = low;
  result.high = high;
  result.found = result.below != 0 && result.above == -result.below;
  if (!result.found) return finish();

  // [low, zone_low] and [zone_high, high] are still open; between the zone's ends the intervals overlap.
  std::int64_t zone_low = high;
  std::int64_t zone_high = low;
  while (true) {
    const bool has_zone = zone_low <= zone_high;
    std::int64_t x = between(result.low, has_zone ? zone_low : result.high, resolution);
    if (x == 0 && has_zone) x = between(zone_high, result.high, resolution);
    if (x == 0) return finish();
    const std::optional<int> winner = line.at(x);
    if (!winner) {
      result.interrupted = true;
      return finish();
    }
    if (*winner == result.below) {
      result.low = std::max(result.low, x);
    } else if (*winner == result.above) {
      result.high = std::min(result.high, x);
    } else {
      zone_low = std::min(zone_low, x);
      zone_high = std::max(zone_high, x);
    }
    if (zone_low >= result.high || zone_high <= result.low) {  // a sure winner beyond it: it was noise
      zone_low = high;
      zone_high = low;
    }
  }
}

}  // namespace mla::run
