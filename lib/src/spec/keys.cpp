// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "spec/sweep.hpp"

namespace mla::spec {
namespace {

constexpr Section kAxis = Section::kAxes;
constexpr Section kHow = Section::kMeasure;

constexpr SweepKey kKeys[] = {
    {"backend", kAxis, "BACKENDS", "all", "Backends to measure, or all; all,-x: without x", false},
    {"shape", kAxis, "SHAPES", "", "Whole shapes as records name them; instead of all axes of the shape",
     false},
    {"model", kAxis, "MODELS", "deepseek-v3", "Models whose MLA widths to use", true},
    {"dims", kAxis, "DIMS", "", "Widths themselves, e.g. h16/l512/r64/p128/v128; instead of model", true},
    {"heads", kAxis, "COUNTS", "", "Query heads on this rank; not set: the model's", true},
    {"tp", kAxis, "COUNTS", "", "Tensor parallelism: heads = model's heads / tp; instead of heads", true},
    {"phase", kAxis, "WORDS", "decode", "decode or prefill", true},
    {"space", kAxis, "WORDS", "head", "head: W_UK and W_UV belong to the work; latent: attention alone",
     true},
    {"batch", kAxis, "BATCHES", "", "Batches in vLLM's grammar: 32q1s4k, 4q2k_64q1s8k, 64q1s1k..16k", true},
    {"requests", kAxis, "COUNTS", "1", "Requests of one batch; with q_len and kv instead of batch", true},
    {"q_len", kAxis, "COUNTS", "1", "New tokens a request (more than 1: speculation or prefill)", true},
    {"kv", kAxis, "COUNTS", "4k", "Keys a request, new tokens included", true},
    {"shared_prefix", kAxis, "COUNTS", "0", "First keys that all requests of a batch share; 0: none", true},
    {"window", kAxis, "COUNTS", "full", "Sliding window in tokens, or full", true},
    {"sink", kAxis, "COUNTS", "0", "First tokens kept beside a window", true},
    {"topk", kAxis, "COUNTS", "0", "Keys of an explicit index a query reads; 0: none", true},
    {"block_size", kAxis, "COUNTS", "64", "Tokens a cache block (page)", true},
    {"dtype", kAxis, "WORDS", "bf16", "Element type of the query", true},
    {"out_dtype", kAxis, "WORDS", "same", "Element type of the output; same: the query's", true},
    {"cache", kAxis, "WORDS", "bf16", "Cache format", true},
    {"work", kAxis, "WORDS", "attention",
     "attention; step: cache write, absorption, attention and W_UV together (GPUs)", false},
    {"splits", kAxis, "COUNTS", "0", "Parts a request's keys are cut into; 0: the backend decides", false},
    {"prefix_reads", kAxis, "WORDS", "auto",
     "auto, once or each: a shared prefix is read once, for each request, or as the backend decides", false},
    {"invariant", kAxis, "WORDS", "no", "yes: the same bits for a request alone or in any batch, at its cost",
     false},
    {"threads", kAxis, "COUNTS", "0", "CPU threads; 0: all", false},
    {"caches", kAxis, "WORDS", "cold", "cold: a call finds none of its data in the caches; warm", false},
    {"noise", kHow, "PERCENT", "1%", "Stop when the 95 % interval of the median is this tight (half width)",
     false},
    {"min_samples", kHow, "COUNT", "7", "Samples taken at least", false},
    {"max_samples", kHow, "COUNT", "200", "Samples taken at most", false},
    {"min_time", kHow, "DURATION", "50ms", "Timed work at least", false},
    {"max_time", kHow, "DURATION", "2s", "Time for one point at most, warm-up and flushes included", false},
    {"preheat", kHow, "DURATION", "100ms", "GPUs: the same work untimed before the first sample", false},
    {"repetitions", kHow, "COUNT", "1", "Whole measurements of each point in a process", false},
    {"processes", kHow, "COUNT", "1",
     "Fresh processes that measure all of it, one after another: what differs between starts is seen", false},
    {"order", kHow, "given|random", "random", "Order of the points: random spreads slow drifts over all",
     false},
    {"verify", kHow, "sample|full|no", "sample", "What is compared with the reference before it is timed",
     false},
    {"seed", kHow, "COUNT", "1", "Seed of inputs, ragged lengths and order", false},
};

/// Two ways to say the same thing.
struct Alternatives {
  std::vector<std::string_view> one, other;
};
const std::vector<Alternatives>& alternatives() {
  static const std::vector<Alternatives> groups = [] {
    Alternatives whole{{"shape"}, {}};
    for (const SweepKey& key : kKeys) {
      if (key.in_shape) whole.other.push_back(key.name);
    }
    return std::vector<Alternatives>{std::move(whole),
                                     {{"dims"}, {"model"}},
                                     {{"tp"}, {"heads"}},
                                     {{"batch"}, {"requests", "q_len", "kv"}}};
  }();
  return groups;
}

const Setting& setting(const SweepSpec& spec, std::string_view key) {
  const auto found = spec.settings.find(key);
  if (found == spec.settings.end()) {
    throw Error(ErrorCode::kInternal, fmt::format("sweep key {} is not in the spec", text::quoted(key)));
  }
  return found->second;
}

/// The strongest set value among `keys`; null if none is set.
const Setting* strongest(const SweepSpec& spec, const std::vector<std::string_view>& keys,
                         std::string_view& which) {
  const Setting* best = nullptr;
  for (const std::string_view key : keys) {
    const Setting& s = setting(spec, key);
    if (s.text.empty() || (best != nullptr && best->level >= s.level)) continue;
    best = &s;
    which = key;
  }
  return best;
}

/// -1: the first side counts, 1: the second, 0: both were said at the same level.
int compare_sides(const SweepSpec& spec, const Alternatives& group, std::string_view& one,
                  std::string_view& other) {
  const Setting* first = strongest(spec, group.one, one);
  const Setting* second = strongest(spec, group.other, other);
  if (first == nullptr) return 1;
  if (second == nullptr || first->level > second->level) return -1;
  return first->level < second->level ? 1 : 0;
}

}  // namespace

std::span<const SweepKey> sweep_keys() {
  return kKeys;
}

SweepSpec default_spec() {
  SweepSpec spec;
  for (const SweepKey& key : kKeys) {
    spec.settings[std::string(key.name)] = {std::string(key.fallback), Level::kDefault, "default"};
  }
  return spec;
}

void override_setting(SweepSpec& spec, std::string_view key, std::string_view text, Level level,
                      std::string_view origin) {
  const auto found = spec.settings.find(key);
  if (found == spec.settings.end()) {
    std::vector<std::string> names;
    for (const SweepKey& k : kKeys) names.emplace_back(k.name);
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: unknown key {}", origin, text::quoted(key)),
                text::suggestion(key, names));
  }
  if (text.empty()) throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: '{}' is empty", origin, key));
  if (level < found->second.level) return;
  found->second = {std::string(text), level, std::string(origin)};
}

bool is_active(const SweepSpec& spec, std::string_view key) {
  if (setting(spec, key).text.empty()) return false;
  std::string_view one;
  std::string_view other;
  for (const Alternatives& group : alternatives()) {
    const bool in_one = std::ranges::find(group.one, key) != group.one.end();
    const bool in_other = std::ranges::find(group.other, key) != group.other.end();
    if (!in_one && !in_other) continue;
    const int side = compare_sides(spec, group, one, other);
    if ((in_one && side > 0) || (in_other && side < 0)) return false;
  }
  return true;
}

void check_alternatives(const SweepSpec& spec) {
  std::string_view one;
  std::string_view other;
  for (const Alternatives& group : alternatives()) {
    if (compare_sides(spec, group, one, other) != 0) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' (from {}) and '{}' (from {}) say the same thing twice", one,
                            setting(spec, one).origin, other, setting(spec, other).origin),
                "give one of them");
  }
}

}  // namespace mla::spec
