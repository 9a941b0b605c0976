// SPDX-License-Identifier: Apache-2.0
#include "verify/case.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <vector>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::verify {
namespace {

constexpr std::int64_t kMostFarTokens = 4;  // 2^30 elements each
constexpr std::int32_t kMostSplits = 1024;

template <class Enum>
struct Name {
  Enum value;
  std::string_view text;
};

constexpr std::array<Name<ValueKind>, 12> kValues{{{ValueKind::kNormal, "normal"},
                                                   {ValueKind::kDominant, "dominant"},
                                                   {ValueKind::kSinks, "sinks"},
                                                   {ValueKind::kConstant, "constant"},
                                                   {ValueKind::kAlternating, "alternating"},
                                                   {ValueKind::kHeavyTail, "heavy_tail"},
                                                   {ValueKind::kTiny, "tiny"},
                                                   {ValueKind::kExtreme, "extreme"},
                                                   {ValueKind::kDenormal, "denormal"},
                                                   {ValueKind::kZeroQuery, "zero_query"},
                                                   {ValueKind::kNan, "nan"},
                                                   {ValueKind::kInfinity, "inf"}}};
constexpr std::array<Name<IndexKind>, 7> kIndexes{{{IndexKind::kPlain, "plain"},
                                                   {IndexKind::kFront, "front"},
                                                   {IndexKind::kMiddle, "middle"},
                                                   {IndexKind::kEnd, "end"},
                                                   {IndexKind::kNone, "none"},
                                                   {IndexKind::kOutside, "outside"},
                                                   {IndexKind::kDuplicates, "duplicates"}}};
constexpr std::array<Name<Poison>, 4> kPoisons{
    {{Poison::kNan, "nan"}, {Poison::kInfinity, "inf"}, {Poison::kZero, "zero"}, {Poison::kMaximum, "max"}}};

constexpr std::array<Name<PrefixReads>, 3> kReads{
    {{PrefixReads::kAuto, "auto"}, {PrefixReads::kOnce, "once"}, {PrefixReads::kEach, "each"}}};

template <class Names, class Enum>
std::string_view text_of(const Names& names, Enum value) noexcept {
  for (const auto& name : names) {
    if (name.value == value) return name.text;
  }
  return "unknown";
}

template <class Names>
auto value_of(const Names& names, std::string_view key, std::string_view text) {
  std::vector<std::string> known;
  for (const auto& name : names) {
    if (name.text == text) return name.value;
    known.emplace_back(name.text);
  }
  throw Error(ErrorCode::kParse,
              fmt::format("case: {}={} is unknown; allowed are {}", key, text, text::join_or(known)));
}

template <class Number>
Number number_of(std::string_view key, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorCode::kParse, fmt::format("case: {}={} is not a number that fits", key, text));
  }
  return value;
}

bool switch_of(std::string_view key, std::string_view text) {
  if (text == "yes") return true;
  if (text == "no") return false;
  throw Error(ErrorCode::kParse, fmt::format("case: {}={} must be yes or no", key, text));
}

std::string yes_no(bool value) {
  return value ? "yes" : "no";
}

/// The words beside the shape: how each is written and read.
struct Word {
  std::string_view key;
  std::string (*write)(const Case&);
  void (*read)(Case&, std::string_view);
};

constexpr Word kWords[] = {
    {"values", [](const Case& c) { return std::string(name_of(c.values)); },
     [](Case& c, std::string_view t) { c.values = value_of(kValues, "values", t); }},
    {"score_std", [](const Case& c) { return fmt::format("{}", c.score_std); },
     [](Case& c, std::string_view t) { c.score_std = number_of<double>("score_std", t); }},
    {"index", [](const Case& c) { return std::string(name_of(c.index)); },
     [](Case& c, std::string_view t) { c.index = value_of(kIndexes, "index", t); }},
    {"poison", [](const Case& c) { return std::string(name_of(c.poison)); },
     [](Case& c, std::string_view t) { c.poison = value_of(kPoisons, "poison", t); }},
    {"permuted", [](const Case& c) { return yes_no(c.permuted); },
     [](Case& c, std::string_view t) { c.permuted = switch_of("permuted", t); }},
    {"strided", [](const Case& c) { return yes_no(c.strided); },
     [](Case& c, std::string_view t) { c.strided = switch_of("strided", t); }},
    {"spare_columns", [](const Case& c) { return fmt::format("{}", c.spare_columns); },
     [](Case& c, std::string_view t) { c.spare_columns = number_of<std::int32_t>("spare_columns", t); }},
    {"first_block", [](const Case& c) { return fmt::format("{}", c.first_block); },
     [](Case& c, std::string_view t) { c.first_block = number_of<std::int64_t>("first_block", t); }},
    {"far_rows", [](const Case& c) { return yes_no(c.far_rows); },
     [](Case& c, std::string_view t) { c.far_rows = switch_of("far_rows", t); }},
    {"lse", [](const Case& c) { return yes_no(c.lse); },
     [](Case& c, std::string_view t) { c.lse = switch_of("lse", t); }},
    {"invariant", [](const Case& c) { return yes_no(c.batch_invariant); },
     [](Case& c, std::string_view t) { c.batch_invariant = switch_of("invariant", t); }},
    {"reads", [](const Case& c) { return std::string(text_of(kReads, c.prefix_reads)); },
     [](Case& c, std::string_view t) { c.prefix_reads = value_of(kReads, "reads", t); }},
    {"splits", [](const Case& c) { return fmt::format("{}", c.num_splits); },
     [](Case& c, std::string_view t) { c.num_splits = number_of<std::int32_t>("splits", t); }},
    {"seed", [](const Case& c) { return fmt::format("{}", c.seed); },
     [](Case& c, std::string_view t) { c.seed = number_of<std::uint64_t>("seed", t); }},
};

void read_word(Case& c, std::string_view word, std::size_t equals) {
  const std::string_view key = word.substr(0, equals);
  std::vector<std::string> known;
  for (const Word& w : kWords) {
    if (w.key == key) {
      w.read(c, word.substr(equals + 1));
      return;
    }
    known.emplace_back(w.key);
  }
  throw Error(ErrorCode::kParse, fmt::format("case: unknown word '{}'", word), text::suggestion(key, known));
}

}  // namespace

std::string_view name_of(ValueKind kind) noexcept {
  return text_of(kValues, kind);
}
std::string_view name_of(IndexKind kind) noexcept {
  return text_of(kIndexes, kind);
}
std::string_view name_of(Poison poison) noexcept {
  return text_of(kPoisons, poison);
}

std::string to_text(const Case& c) {
  std::string line = mla::to_text(c.shape);
  const Case defaults;
  for (const Word& w : kWords) {
    const std::string text = w.write(c);
    if (text != w.write(defaults)) line += fmt::format(" {}={}", w.key, text);
  }
  return line;
}

Case parse_case(std::string_view text) {
  Case c;
  std::string shape;
  std::set<std::string> seen;
  for (const std::string& word : text::split(text, ' ')) {
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      shape += shape.empty() ? word : " " + word;
    } else {
      if (!seen.insert(word.substr(0, equals)).second)
        throw Error(ErrorCode::kParse, fmt::format("case: '{}' is said twice", word.substr(0, equals)));
      read_word(c, word, equals);
    }
  }
  c.shape = parse_shape(shape);
  return c;
}

void validate(const Case& c) {
  validate(c.shape);
  const auto refuse = [](const std::string& sentence) {
    throw Error(ErrorCode::kInvalidArgument, "case: " + sentence);
  };
  if (!(c.score_std >= 0 && c.score_std <= 1e6)) {
    refuse(fmt::format("score_std is {}, but must lie in 0..1e6", c.score_std));
  }
  if (c.spare_columns < 0 || c.spare_columns > 1 << 20) {
    refuse(fmt::format("spare_columns is {}, but must lie in 0..1048576", c.spare_columns));
  }
  if (c.num_splits < 0 || c.num_splits > kMostSplits) {
    refuse(fmt::format("splits is {}, but must lie in 0..{} (0: the backend decides)", c.num_splits,
                       kMostSplits));
  }
  if (c.values == ValueKind::kNan || c.values == ValueKind::kInfinity) {
    // They go through the rotary part, or the first latent channel, which has to hold them as they are.
    if (c.shape.cache == CacheFormat::kFp8)
      refuse(fmt::format("an fp8 cache cannot hold values={}", name_of(c.values)));
    if (c.shape.dims.qk_rope_head_dim == 0 && c.shape.cache == CacheFormat::kFp8DsMla)
      refuse(fmt::format("an {} cache cannot hold values={} without a rotary part", name_of(c.shape.cache),
                         name_of(c.values)));
  }
  if (c.far_rows && c.shape.num_tokens() > kMostFarTokens) {
    refuse(
        fmt::format("far_rows is for at most {} query tokens, not {}", kMostFarTokens, c.shape.num_tokens()));
  }
  if (c.first_block < 0 || c.first_block > std::int64_t{1} << 30) {
    refuse(fmt::format("first_block is {}, but must lie in 0..{}", c.first_block, std::int64_t{1} << 30));
  }
}

}  // namespace mla::verify
