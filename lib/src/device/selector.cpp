// SPDX-License-Identifier: Apache-2.0
#include "mla/selector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "core/selection.hpp"
#include "core/text.hpp"
#include "device/config_files.hpp"
#include "mla/error.hpp"
#include "model/json_value.hpp"
#include "model/read_file.hpp"

namespace mla {
namespace {

constexpr std::int64_t kSchema = 1;

/// What decides which strategy wins, as numbers whose ratios matter.
std::vector<double> features(const AttentionShape& shape) {
  double longest = 1;
  for (const Request& request : shape.batch) longest = std::max<double>(longest, request.kv_len);
  double visible = longest;
  if (shape.topk > 0) {
    visible = std::min<double>(visible, shape.topk);
  } else if (shape.mask.window) {
    visible = std::min(visible, static_cast<double>(*shape.mask.window) + shape.mask.sink);
  }
  return {static_cast<double>(shape.dims.num_heads),
          std::max<double>(1, static_cast<double>(shape.batch.size())),
          std::max<double>(1, static_cast<double>(shape.num_tokens())), longest, visible};
}

int kind_of_mask(const AttentionShape& shape) {
  return shape.topk > 0 ? 3 : shape.mask.window ? 2 : shape.mask.causal ? 1 : 0;
}

bool comparable(const AttentionShape& a, const AttentionShape& b) {
  return a.phase == b.phase && a.space == b.space && kind_of_mask(a) == kind_of_mask(b) &&
         a.cache == b.cache && a.q_dtype == b.q_dtype;
}

const json::Value& member(const json::Value& object, std::string_view key, std::string_view origin) {
  if (const json::Value* value = object.find(key)) return *value;
  throw Error(ErrorCode::kParse, fmt::format("{}: there is no key '{}'", origin, key));
}

[[noreturn]] void wrong(std::string_view origin, std::string_view key, std::string_view wanted,
                        const json::Value& value) {
  throw Error(ErrorCode::kParse,
              fmt::format("{}: '{}' must be {}, but is {}", origin, key, wanted, json::describe(value)));
}

template <class T>
const T& typed(const json::Value& object, std::string_view key, std::string_view wanted,
               std::string_view origin) {
  const json::Value& value = member(object, key, origin);
  if (const T* found = value.get_if<T>()) return *found;
  wrong(origin, key, wanted, value);
}

double time_of(const json::Value& value, std::string_view backend, std::string_view origin) {
  double time = 0;
  if (const auto* integer = value.get_if<std::int64_t>()) time = static_cast<double>(*integer);
  if (const auto* real = value.get_if<json::Real>()) time = real->value;
  if (!(time > 0) || !std::isfinite(time)) wrong(origin, backend, "a time above 0", value);
  return time;
}

Selector::Point read_point(const json::Value& object, std::string_view origin) {
  Selector::Point point;
  point.shape = parse_shape(typed<std::string>(object, "shape", "the text of a shape", origin));
  for (const auto& [backend, value] : typed<json::Object>(object, "us", "an object of times", origin))
    point.times_us.emplace_back(backend, time_of(value, backend, origin));
  return point;
}

}  // namespace

Selector::Selector(std::string device, std::vector<Point> points)
    : device_(std::move(device)), points_(std::move(points)) {
  for (Point& point : points_)
    std::ranges::stable_sort(point.times_us, {}, [](const auto& entry) { return entry.second; });
}

const Selector::Point* Selector::nearest(const AttentionShape& shape) const {
  const std::vector<double> wanted = features(shape);
  const Point* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Point& point : points_) {
    if (!comparable(point.shape, shape)) continue;
    const std::vector<double> measured = features(point.shape);
    double distance = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) distance += std::abs(std::log2(wanted[i] / measured[i]));
    if (distance < least) {
      least = distance;
      best = &point;
    }
  }
  return best;
}

Selector parse_selector(std::string_view json_text, std::string_view origin) {
  const json::Value root = json::parse(json_text, origin, {.comments = true});
  const auto schema = typed<std::int64_t>(root, "schema_version", "an integer", origin);
  if (schema > kSchema) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: schema version {} is newer than {}", origin, schema, kSchema));
  }
  std::vector<Selector::Point> points;
  for (const json::Value& point : typed<json::Array>(root, "points", "a list", origin))
    points.push_back(read_point(point, origin));
  return {typed<std::string>(root, "device", "a text", origin), std::move(points)};
}

Selector load_selector(const std::filesystem::path& file) {
  return parse_selector(read_text_file(file), file.string());
}

const Selector& selector_for(const Device& device) {
  static std::mutex mutex;
  static std::map<std::string, Selector> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(device.name);
  if (found != known.end()) return found->second;
  for (const std::filesystem::path& file : config_files("selectors")) {
    Selector selector = load_selector(file);
    // A described GPU has its file's name, a real one the driver's.
    const bool described = device.origin == DeviceOrigin::kDescribed && file.stem() == device.name;
    if (described || selector.device() == device.name)
      return known.emplace(device.name, std::move(selector)).first->second;
  }
  return known[device.name];
}

const Backend& choose_backend(const AttentionShape& shape, const Device& device, const Selector& selector) {
  const std::vector<Candidate> answers = candidates(shape, device);
  if (const Selector::Point* point = selector.nearest(shape)) {
    for (const auto& [name, time] : point->times_us) {
      const auto candidate = std::ranges::find_if(
          answers, [&wanted = name](const Candidate& c) {  // clang 14 captures no binding itself
            return c.backend->info().name == wanted && c.support.ok;
          });
      if (candidate != answers.end()) return *candidate->backend;
    }
  }
  const auto first = std::ranges::find_if(answers, [](const Candidate& c) { return c.support.ok; });
  if (first != answers.end()) return *first->backend;
  throw_no_backend(shape, device, answers);
}

const Backend& choose_backend(const AttentionShape& shape, const Device& device) {
  return choose_backend(shape, device, selector_for(device));
}

}  // namespace mla
