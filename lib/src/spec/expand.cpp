// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/text.hpp"
#include "mla/random.hpp"
#include "spec/point_builder.hpp"
#include "spec/read.hpp"
#include "spec/values.hpp"

namespace mla::spec {
namespace {

constexpr std::size_t kMostPoints = 100'000;
constexpr std::uint64_t kOrderStream = 0x6f72646572;  // "order"

/// "full,1k..4k:x2" -> "full", "1024", "2048", "4096"; words stay as they are. Of backends "-x" takes x out again.
std::vector<std::string> tokens_of(const SweepKey& key, const std::string& text,
                                   std::span<const std::string> backends) {
  std::vector<std::string> tokens;
  for (const std::string& word : parse_words(text, key.name)) {
    if (key.name == "backend" && word == "all") {
      tokens.insert(tokens.end(), backends.begin(), backends.end());
    } else if (key.name == "backend" && word.starts_with('-')) {
      if (std::erase(tokens, word.substr(1)) == 0) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} takes out what is not named before it", text::quoted(word)),
                    "write it like all,-cuda-naive");
      }
    } else if (key.type != "COUNTS" || (key.name == "window" && word == "full")) {
      tokens.push_back(word);
    } else {
      for (const std::int64_t value : parse_count_list(word, key.name))
        tokens.push_back(fmt::format("{}", value));
    }
  }
  return tokens;
}

/// What a point is, for throwing out repetitions.
std::string point_text(const SweepPoint& point) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", to_text(point.shape), point.backend, point.options.num_splits,
                     point.options.threads, name_of(point.caches), point.step, mode_text(point.options));
}

struct Axis {
  std::string_view key;
  std::vector<std::string> tokens;
};

/// The active axes, slowest first, the backend last so that rivals run close together.
std::vector<Axis> axes_of(const SweepSpec& spec, std::span<const std::string> backends) {
  std::vector<Axis> axes;
  for (const SweepKey& key : sweep_keys()) {
    if (key.section != Section::kAxes || !is_active(spec, key.name)) continue;
    axes.push_back({key.name, with_context(spec, key.name, [&] {
                      return tokens_of(key, spec.settings.find(key.name)->second.text, backends);
                    })});
  }
  const auto backend = std::ranges::find(axes, std::string_view("backend"), &Axis::key);
  if (backend == axes.end() || backend->tokens.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "no backend is named", "'mla-bench list backends' shows them");
  }
  std::rotate(backend, backend + 1, axes.end());
  return axes;
}

std::vector<SweepPoint> cross(const SweepSpec& spec, std::span<const std::string> backends,
                              std::uint64_t seed) {
  const std::vector<Axis> axes = axes_of(spec, backends);
  double product = 1;
  for (const Axis& axis : axes) product *= static_cast<double>(axis.tokens.size());
  if (product > static_cast<double>(kMostPoints)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the sweep has {} points, more than {}", product, kMostPoints));
  }
  PointBuilder builder(spec, seed);
  std::vector<SweepPoint> points;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < static_cast<std::size_t>(product); ++i) {
    Tokens tokens;
    std::size_t rest = i;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      tokens[axis->key] = axis->tokens[rest % axis->tokens.size()];
      rest /= axis->tokens.size();
    }
    SweepPoint point = builder.build(tokens);
    point.position = points.size();
    if (seen.insert(point_text(point)).second) points.push_back(std::move(point));
  }
  return points;
}

/// Shapes in random order, and the rivals of a shape in random order beside each other: they meet the same machine, and what
/// was made for a shape is used by all.
void shuffle(std::vector<SweepPoint>& points, std::uint64_t seed) {
  const CounterRng shapes(seed, kOrderStream);
  const CounterRng rivals(seed, kOrderStream + 1);
  std::map<std::string, std::uint64_t> place;  // of a shape
  const auto order = [&](const SweepPoint& point) {
    const std::string text = fmt::format("{}|{}|{}", to_text(point.shape), name_of(point.caches), point.step);
    const std::uint64_t draw = shapes.bits(place.try_emplace(text, place.size()).first->second);
    return std::tuple(draw, rivals.bits(point.position), point.position);
  };
  std::vector<std::pair<decltype(order(points.front())), SweepPoint>> keyed;
  for (SweepPoint& point : points) keyed.emplace_back(order(point), std::move(point));
  std::ranges::sort(keyed, {}, [](const auto& entry) { return entry.first; });
  points.clear();
  for (auto& entry : keyed) points.push_back(std::move(entry.second));
}

}  // namespace

Sweep resolve(const SweepSpec& spec, std::span<const std::string> backends) {
  check_alternatives(spec);
  Sweep sweep{spec.name, spec.question, {}, measure_of(spec)};
  sweep.points = cross(spec, backends, sweep.measure.seed);
  if (sweep.measure.random_order) shuffle(sweep.points, sweep.measure.seed);
  return sweep;
}

std::string command_for(const SweepPoint& point, const Measure& measure) {
  std::string command = fmt::format("mla-bench run --shape '{}' --backend {} --caches {} --seed {}",
                                    to_text(point.shape), point.backend, name_of(point.caches), measure.seed);
  if (point.step) command += " --work step";
  if (point.options.num_splits > 0) command += fmt::format(" --splits {}", point.options.num_splits);
  if (point.options.batch_invariant) command += " --invariant yes";
  if (point.options.prefix_reads != PrefixReads::kAuto) {
    command +=
        fmt::format(" --prefix-reads {}", point.options.prefix_reads == PrefixReads::kOnce ? "once" : "each");
  }
  if (point.options.threads > 0) command += fmt::format(" --threads {}", point.options.threads);
  return command;
}

}  // namespace mla::spec
